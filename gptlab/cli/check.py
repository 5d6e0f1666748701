"""`gptlab check`: is a variant a correct causal language model, yours included?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gptlab.cli.arguments import Parser
from gptlab.cli.output import tell
from gptlab.config import Config
from gptlab.declare.composer import Composer
from gptlab.errors import ConfigError
from gptlab.planning import sweep
from gptlab.planning.plan import Plan, PlannedRun, expand
from gptlab.store.json_text import json_text

if TYPE_CHECKING:
    from gptlab.check import Report

HELP = """\
usage: gptlab check [KEY=VALUE ...] [--format table|json] [--config-dir FOLDER]

Builds each variant that the same words without `check` would run, and looks at what has to hold for any causal language
model: nothing leaks from the future or from the neighbours in a batch, gradients reach every parameter, ties and
checkpoints survive, dropout is the only difference between training and eval, the model is not the baseline's twin.
Nothing is written. Exit code 0: no line failed; 1: one did; 2: the command is wrong.

  gptlab check model=tiny ablation=rmsnorm
  gptlab check model=tiny ablation=mine
  gptlab check model=tiny model.norm=my_norm 'plugins=[my_module]'"""
_COLORS = {"pass": "green", "fail": "bold red", "not applicable": "dim"}
WIDE = 200  # characters in a pipe: as wide as the words need


def main(arguments: Sequence[str]) -> int:
    """Print one report per variant on stdout."""
    parser = Parser(overrides=True)
    parser.option("--format", choices=("table", "json"), default="table")
    given = parser.read(arguments)
    if given.help:
        print(HELP)
        return 0
    plan = expand(given.words, given.config_dirs)
    composer = Composer(given.config_dirs)
    for message in composer.warnings:
        tell(message)
    from gptlab.check import check

    reports = []
    for run in _asked(plan, composer, given.words):
        report = check(run.config, _baseline(plan, run, composer))
        reports.append(report)
        if given.format != "json":
            _print(report)
    if given.format == "json":
        print(json_text([report.to_json() for report in reports], indent=1))
    return 0 if all(report.passed for report in reports) else 1


def _asked(plan: Plan, composer: Composer, words: Sequence[str]) -> list[PlannedRun]:
    """One run per variant, without baselines that the plan has added: a seed changes no verdict."""
    asked = plan.runs[len(plan.skipped) - len(sweep.jobs(composer, words)) :]
    return list({run.label: run for run in reversed(asked)}.values())[::-1]


def _baseline(plan: Plan, run: PlannedRun, composer: Composer) -> Config | None:
    """What the plan compares the run with; for a single variant, the same presets without its changes."""
    found = next((other.config for other in plan.runs if other.id == run.baseline_id), None)
    if found is not None:
        return found
    bare = [text for text in run.overrides if _chooses(text)]
    if len(bare) == len(run.overrides):  # nothing is changed: it is its own baseline
        return run.config
    try:
        return composer.job(bare).config
    except ConfigError:
        return None


def _chooses(text: str) -> bool:
    key = text.lstrip("+").partition("=")[0]
    return key in ("model", "data", "probes", "experiment", "seed", "rng") and "={" not in text


def _print(report: Report) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from gptlab.show.layout import print_whole, written

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("check", "verdict", "what was seen"):
        table.add_column(heading, overflow="fold", no_wrap=heading != "what was seen")
    for line in report.lines:
        table.add_row(Text(line.check), Text(line.status, style=_COLORS[line.status]), Text(line.reason))
    count = {status: sum(line.status == status for line in report.lines) for status in _COLORS}
    said = ", ".join(f"{number} {status}" for status, number in count.items() if number)
    with written(piped=WIDE) as console:
        print_whole(console, table)
        console.print(Text(f"{report.label}: {said}"), soft_wrap=True)
