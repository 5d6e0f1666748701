"""`gptlab reproduce`: every published number, what comes out here, and whether they agree."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from gptlab.book.reproduce.claims import Claim, chosen, groups_of, load_claims
from gptlab.cli.arguments import Parser
from gptlab.errors import ConfigError

HELP = """\
usage: gptlab reproduce [--only GROUP[,GROUP]] [--format table|md|csv|json|errata]

Computes every checkable number of the sources that gptlab grew from, with gptlab's own models, probes and counters, and
prints what was published, what came out, and a verdict: reproduced (to the digits that were printed), within tolerance,
differs (and what is true), not computable here (and why). About a minute and 3 GB for all. Nothing is written.

--only    groups, or the ids of single claims. Groups: {groups}
--format  md, csv and json say the working too; errata is the page docs/errata.md

  gptlab reproduce
  gptlab reproduce --only counting
  gptlab reproduce --only gelu,layernorm --format md

Exit code 0: every verdict is as expected, known errata included; 1: one is not; 2: the command is wrong."""
FORMATS = ("table", "md", "csv", "json", "errata")
_CLEAR = "\r\x1b[2K"


def main(arguments: Sequence[str]) -> int:
    """Print the verdicts on stdout."""
    parser = Parser()
    parser.option("--only")
    parser.option("--format", choices=FORMATS, default="table")
    given = parser.read(arguments)
    claims = load_claims()
    if given.help:
        print(HELP.format(groups=", ".join(groups_of(claims))))
        return 0
    if given.words:
        raise ConfigError(
            f"reproduce: {given.words[0]!r} is no option. Did you mean --only {given.words[0]}?",
            code="reproduce-group-as-option",
            value=given.words[0],
            suggestion=f"--only {given.words[0]}",
        )
    format = given.format
    groups = [word.strip() for word in given.only.split(",")] if given.only else []
    chosen(claims, groups)  # refuses what does not exist
    if format == "errata" and groups:
        raise ConfigError(
            "--format errata: is the page on all claims, and --only would leave some out.",
            code="errata-is-of-all-claims",
        )
    from gptlab.book.reproduce import reproduce
    from gptlab.book.reproduce.errata import page
    from gptlab.book.reproduce.rendering import export, print_table

    try:
        results = reproduce(groups, started=_started)
    finally:
        _write("")
    if format == "table":
        print_table(results)
    else:
        print(page(results) if format == "errata" else export(results, format), end="")
    return 0 if all(result.as_expected for result in results) else 1


def _started(number: int, total: int, claim: Claim) -> None:
    _write(f"[{number:{len(str(total))}}/{total}] {claim.group}  {claim.id} ...")


def _write(text: str) -> None:
    if sys.stderr.isatty():
        room = shutil.get_terminal_size().columns - 1  # a wrapped line could not be taken back
        print(f"{_CLEAR}{text[:room]}", end="", file=sys.stderr, flush=True)
