"""`gptlab compare`: variants against their baseline, with intervals and a verdict; or the differences of two runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from gptlab.errors import ConfigError, unknown

HELP = """\
usage: gptlab compare PATH... [--baseline VARIANT] [--metric M[,M...]] [--margin 0.01|1%] [--by step]
                      [--pooled] [--format table|md|csv|json|latex|html]
       gptlab compare --diff RUN RUN [--format table|json]

Compares the variants in studies (their folders) or in single runs (their folders) with their baseline, seed by seed.
--baseline  a variant's name, in place of the baseline that was planned
--metric    what to show; without it the primary metric and all others that vary
--margin    a difference in the primary metric that does not matter: unlocks the verdict "equivalent within margin"
--by step   several budgets of training side by side
--pooled    for few seeds: one spread for all arms in the primary metric, and Dunnett's test; says what that assumes
--format    csv and json have every column and every digit
--diff      config, code, environment and data of two runs: what differs

  gptlab compare outputs/chapter4/2026-01-02_03-04-05-000006
  gptlab compare STUDY --metric final_loss --margin 1% --format latex > table.tex"""

FORMATS = ("table", "md", "csv", "json", "latex", "html")
OPTIONS = ("--baseline", "--metric", "--margin", "--by", "--format")


def main(arguments: Sequence[str]) -> int:
    """Print the comparison on stdout. 2 for what cannot be compared."""
    words, options, flags = _split(arguments)
    if "--help" in flags:
        print(HELP)
        return 0
    format = options.get("--format", "table")
    if format not in FORMATS:
        raise unknown("--format", format, FORMATS)
    if "--diff" in flags:
        return _diff(words, {**options, **dict.fromkeys(flags & {"--pooled"}, "")}, format)
    from gptlab.comparing.assemble import compare
    from gptlab.show.comparison_table import print_comparison
    from gptlab.show.exports import export

    comparison = compare(
        words,
        baseline=options.get("--baseline"),
        metrics=[name for name in options.get("--metric", "").split(",") if name],
        by=options.get("--by"),
        margin=options.get("--margin"),
        pooled="--pooled" in flags,
    )
    if format == "table":
        print_comparison(comparison)
        return 0
    print(export(comparison, format), end="")
    if format in ("csv", "latex"):  # the others say it themselves
        from gptlab.comparing.caption import lost_runs

        for warning in (*lost_runs(comparison), *comparison.warnings):
            print(f"gptlab: {warning}", file=sys.stderr)
    return 0


def _split(arguments: Sequence[str]) -> tuple[list[str], dict[str, str], set[str]]:
    words: list[str] = []
    options: dict[str, str] = {}
    flags: set[str] = set()
    rest = iter(arguments)
    for text in rest:
        flag, equals, value = text.partition("=")
        flag = "--help" if flag == "-h" else flag
        if not flag.startswith("-"):
            words.append(text)
        elif flag in ("--help", "--diff", "--pooled") and not equals:
            flags.add(flag)
        elif flag not in OPTIONS:
            raise unknown("option", flag, [*OPTIONS, "--diff", "--help", "--pooled"])
        elif flag in options:
            raise ConfigError(f"{flag}: given twice. There can be only one.")
        else:
            options[flag] = value if equals else next(rest, "")
            if not options[flag]:
                raise ConfigError(f"{flag}: needs a value.")
    return words, options, flags


def _diff(words: Sequence[str], options: dict[str, str], format: str) -> int:
    others = [flag for flag in options if flag != "--format"]
    if others or format not in ("table", "json"):
        raise ConfigError("--diff: takes two run folders, and --format table or json. Nothing else.")
    if len(words) != 2:
        raise ConfigError(f"--diff: takes two run folders, and this names {len(words)}.")
    from gptlab.comparing.diff import run_differences
    from gptlab.texts import printable

    found = run_differences(Path(words[0]), Path(words[1]))
    if format == "json":
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return 0
    print(f"A: {printable(words[0])}\nB: {printable(words[1])}")
    for heading, pairs in found.items():
        print(f"\n{heading}: {'' if pairs else 'the same'}".rstrip())
        width = max(map(len, pairs), default=0)
        for key, (one, two) in pairs.items():
            print(f"  {printable(key):{width}}  {_say(one)} -> {_say(two)}")
    return 0


def _say(value: object) -> str:
    from gptlab.texts import printable

    return printable(value) if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
