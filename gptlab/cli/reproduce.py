"""`gptlab reproduce`: every published number, what comes out here, and whether they agree."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from gptlab.book.reproduce.claims import Claim, chosen, groups_of, load_claims
from gptlab.errors import ConfigError, unknown

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
OPTIONS = ("--only", "--format")
_CLEAR = "\r\x1b[2K"


def main(arguments: Sequence[str]) -> int:
    """Print the verdicts on stdout."""
    options = _split(arguments)
    claims = load_claims()
    if "--help" in options:
        print(HELP.format(groups=", ".join(groups_of(claims))))
        return 0
    format = options.get("--format", "table")
    if format not in FORMATS:
        raise unknown("--format", format, FORMATS)
    groups = [word.strip() for word in options["--only"].split(",")] if "--only" in options else []
    chosen(claims, groups)  # refuses what does not exist
    if format == "errata" and groups:
        raise ConfigError("--format errata: is the page on all claims, and --only would leave some out.")
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


def _split(arguments: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    rest = iter(arguments)
    for text in rest:
        flag, equals, value = text.partition("=")
        if flag in ("-h", "--help"):
            options["--help"] = ""
        elif not flag.startswith("-"):
            raise ConfigError(f"reproduce: {text!r} is no option. Did you mean --only {text}?")
        elif flag not in OPTIONS:
            raise unknown("option", flag, [*OPTIONS, "--help"])
        elif flag in options:
            raise ConfigError(f"{flag}: given twice. There can be only one; --only takes several groups, with commas.")
        else:
            options[flag] = value if equals else next(rest, "")
            if not options[flag]:
                raise ConfigError(f"{flag}: needs a value.")
    return options


def _started(number: int, total: int, claim: Claim) -> None:
    _write(f"[{number:{len(str(total))}}/{total}] {claim.group}  {claim.id} ...")


def _write(text: str) -> None:
    if sys.stderr.isatty():
        room = shutil.get_terminal_size().columns - 1  # a wrapped line could not be taken back
        print(f"{_CLEAR}{text[:room]}", end="", file=sys.stderr, flush=True)
