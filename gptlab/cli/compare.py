"""`gptlab compare`: variants against their baseline, with intervals and a verdict; or the differences of two runs."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from gptlab.cli.arguments import Parser, about_options, names
from gptlab.cli.output import tell
from gptlab.errors import ConfigError
from gptlab.store.json_text import json_text

HELP = """\
usage: gptlab compare PATH... [--baseline VARIANT] [--metric M[,M...]] [--margin 0.01|1%] [--by step]
                      [--pooled] [--all] [--label LABEL=NAME ...] [--columns C[,C...]] [--caption TEXT]
                      [--format table|md|csv|json|latex|html]
       gptlab compare --diff RUN RUN [--format table|json]

Compares the variants in studies (their folders) or in single runs (their folders) with their baseline, seed by seed.
--baseline  a variant's name, in place of the baseline that was planned
--metric    what to show; without it the primary metric and all others that vary
--margin    a difference in the primary metric that does not matter: unlocks the verdict "equivalent within margin"
--by step   several budgets of training side by side
--pooled    for few seeds: one spread for all arms in the primary metric, and Dunnett's test; says what that assumes
--all       a table for each metric, in place of one for all but the primary metric
--label     what the tables call a variant (several times), beside the names that experiment.labels has
--columns   one table with these columns of every metric shown: mean_sd, difference, interval, p_corrected, verdict,
            parameters_percent, ... (docs/comparing.md lists them)
--caption   what the table is called, in md, latex and html
--format    csv and json have every column and every digit
--diff      config, code, environment and data of two runs: what differs

  gptlab compare outputs/chapter4
  gptlab compare STUDY --metric final_loss --columns mean_sd,verdict --caption "Norms" --format latex > table.tex"""

FORMATS = ("table", "md", "csv", "json", "latex", "html")
OPTIONS = ("--baseline", "--metric", "--margin", "--by", "--columns", "--caption")
SWITCHES = ("--pooled", "--all")


def main(arguments: Sequence[str]) -> int:
    """Print the comparison on stdout. 2 for what cannot be compared."""
    parser = Parser()
    for flag in OPTIONS:
        parser.option(flag)
    parser.repeated("--label")
    parser.option("--format", choices=FORMATS, default="table")
    parser.switch("--diff")
    for flag in SWITCHES:
        parser.switch(flag)
    given = parser.read(arguments)
    if given.help:
        print(HELP)
        return 0
    if given.diff:
        return _diff(given)
    from gptlab.comparing.assemble import compare
    from gptlab.show.comparison_table import print_comparison
    from gptlab.show.exports import export

    read = given.format in ("csv", "json")  # by programs: the labels of the files
    if given.label and read:
        raise ConfigError(f"--label: not with --format {given.format}.", code="label-not-with-format", key="--label")
    with about_options(given, "baseline", "metric", "by", "margin", "label"):
        comparison = compare(
            given.words,
            baseline=given.baseline,
            metrics=names(given.metric),
            by=given.by,
            margin=given.margin,
            pooled=given.pooled,
            labels=None if read else given.label,
        )
    columns = names(given.columns)
    for flag, refused in (("--columns", ("csv", "json")), ("--caption", ("csv", "json", "table"))):
        if getattr(given, flag.strip("-")) and given.format in refused:
            raise ConfigError(f"{flag}: not with --format {given.format}.", code="not-with-format", key=flag)
    if given.format == "table":
        every_metric = given.all or bool(given.metric)
        print_comparison(comparison, every_metric=every_metric, columns=columns)
        return 0
    print(export(comparison, given.format, columns, given.caption or ""), end="")
    # The others say it themselves; LaTeX says it in comments, which nobody sees whose table goes into a file.
    if given.format == "csv" or (given.format == "latex" and not sys.stdout.isatty()):
        from gptlab.comparing.caption import lost_runs

        for warning in (*lost_runs(comparison), *comparison.warnings):
            tell(warning)
    return 0


def _diff(given: Namespace) -> int:
    words = given.words
    others = [flag for flag in (*OPTIONS, *SWITCHES, "--label") if getattr(given, flag.strip("-"))]
    if others or given.format not in ("table", "json"):
        raise ConfigError(
            "--diff: takes two run folders, and --format table or json. Nothing else.", code="diff-takes-no-options"
        )
    if len(words) != 2:
        raise ConfigError(f"--diff: takes two run folders, and this names {len(words)}.", code="diff-takes-two-runs")
    from gptlab.comparing.diff import run_differences
    from gptlab.texts import printable

    found = run_differences(Path(words[0]), Path(words[1]))
    if given.format == "json":
        print(json_text(found, indent=1))
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
