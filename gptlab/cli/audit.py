"""`gptlab audit`: the protocol of a study as a certificate."""

from __future__ import annotations

from collections.abc import Sequence

from gptlab.cli.arguments import Parser, one_folder
from gptlab.errors import ConfigError

HELP = """\
usage: gptlab audit STUDY [--format table|json]

Was the comparison fair? Ten lines, each computed from the study's files: pass, fail or not asked, with the reason and
the command that would mend it. Exit code 0 when all pass, 1 when one fails, 3 when none fails and something was not
asked.

  gptlab audit outputs/runs"""
CODES = {"pass": 0, "fail": 1, "not asked": 3}


def main(arguments: Sequence[str]) -> int:
    """Print the certificate on stdout."""
    parser = Parser()
    parser.option("--format", choices=("table", "json"), default="table")
    given = parser.read(arguments)
    if given.help:
        print(HELP)
        return 0
    if not given.words:
        raise ConfigError("audit: name a study's folder (gptlab ls lists them).", code="audit-what")
    from gptlab.comparing.audit import audit, listed
    from gptlab.store.json_text import json_text
    from gptlab.texts import printable

    found = audit(one_folder("audit", given.words, ""))
    if given.format == "json":
        print(json_text(found.to_json(), indent=1))
    else:
        print(f"{printable(found.study)}: {found.verdict} (protocol {found.protocol[:12]})")
        for line in listed(found.lines, found.command):
            print(printable(line))
        for note in found.notes:
            print(printable(note))
    return CODES[found.verdict]
