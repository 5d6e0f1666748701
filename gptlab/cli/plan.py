"""`gptlab plan`: what would run, and what it would cost, without running it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from gptlab import analyses
from gptlab.cli.arguments import Parser
from gptlab.config import Config
from gptlab.planning.plan import Plan, PlannedRun, expand
from gptlab.running.decisions import Decision, explain, survey

HELP = """\
usage: gptlab plan [KEY=VALUE ...] [--format table|json] [--config-dir FOLDER]

Shows the runs that the same words without `plan` would start: for each variant its exact difference to the baseline,
parameters, forward FLOPs per token, memory (weights; peak of the gradient probe or of training, estimated), what each
training would spend, and below that which runs are there already, and what would be done with them. Nothing is run.

  gptlab plan experiment=chapter4
  gptlab plan model=gpt3_175b"""
MIB = 2**20


def main(arguments: Sequence[str]) -> int:
    """Print the plan on stdout, its notes on stderr."""
    parser = Parser(overrides=True)
    parser.option("--format", choices=("table", "json"), default="table")
    given = parser.read(arguments)
    if given.help:
        print(HELP)
        return 0
    plan = expand(given.words, given.config_dirs)
    for note in plan.notes:
        print(f"gptlab: {note}", file=sys.stderr)
    costs = {run.id: cost(run.config) for run in _variants(plan)}
    decisions = survey(plan, plan.output_dir / plan.study)
    if given.format == "json":
        print(json.dumps(_document(plan, costs, decisions), indent=1, ensure_ascii=False))
    else:
        _print_table(plan, costs)
        if plan.analysis:
            print(f"Then the analysis {analyses.describe(plan.runs[0].config.experiment)}")
        for line in explain(plan.runs, decisions):
            print(line)
    return 0


def cost(config: Config) -> dict[str, float | int | None]:
    """Counts of one variant; `peak_mib`: what the gradient probe and the training, where there are any, need at their
    peak; and of a training what it is going to spend: `steps`, `tokens`, `training_flops`.
    """
    from gptlab.probes.parameters import count
    from gptlab.probes.shapes import memory_estimate

    costs: dict[str, float | int | None] = {**count(config), "peak_mib": None}
    peaks = []
    probe = config.probes.gradients
    if probe and probe.context:
        peaks.append(memory_estimate(config.model, probe.batch_size, probe.context)[1])
    if config.train.budget is not None:
        from gptlab.training.budget import Budget
        from gptlab.training.memory import peak_bytes

        peaks.append(peak_bytes(config))
        budget = Budget.of(config)
        if (steps := budget.steps) is not None:
            costs["steps"], costs["tokens"] = steps, steps * budget.tokens_per_step
            costs["training_flops"] = steps * budget.flops_per_step
    if peaks:
        costs["peak_mib"] = max(peaks) / MIB
    return costs


def _variants(plan: Plan) -> list[PlannedRun]:
    """One run for each label: seeds change no count."""
    return list({run.label: run for run in reversed(plan.runs)}.values())[::-1]


def _document(plan: Plan, costs: dict[str, dict[str, Any]], decisions: Sequence[Decision]) -> dict[str, Any]:
    by_label = {run.label: costs[run.id] for run in _variants(plan)}
    document = plan.to_json()
    document["runs"] = [
        {**run, "cost": by_label[run["label"]], "decision": vars(decision)}
        for run, decision in zip(document["runs"], decisions, strict=True)
    ]
    return document


def _print_table(plan: Plan, costs: dict[str, dict[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("variant", "parameters", "difference", "FLOPs/token", "weights MiB", "peak MiB", "changed"):
        table.add_column(heading, justify="left" if heading in ("variant", "changed") else "right")
    labels = {run.id: run.label for run in plan.runs}
    by_label = {run.label: costs[run.id] for run in _variants(plan)}
    for run in _variants(plan):
        base = by_label.get(labels.get(run.baseline_id or "", ""))
        table.add_row(*(Text(cell) for cell in _cells(run, by_label[run.label], base)))
    # A pipe has no width: let it be as wide as the words need.
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    console.print(table)
    seeds = list(dict.fromkeys(run.seed for run in plan.runs))
    named = (
        f"seeds {', '.join(map(str, seeds[:8]))}{', ...' if len(seeds) > 8 else ''}" if len(seeds) > 1 else "one seed"
    )
    words = f"{len(plan.runs)} {'runs' if len(plan.runs) > 1 else 'run'} ({named}), in {plan.output_dir}/{plan.study}/."
    console.print(Text(" ".join([words, *_training(list(by_label.values())), "Nothing was run."])), soft_wrap=True)


def _training(costs: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence on what each run trains for; variants that differ are given as a range."""
    trained = [cost for cost in costs if "steps" in cost]
    if not trained:
        return []

    def span(key: str, form: str) -> str:
        ends = dict.fromkeys(format(end(cost[key] for cost in trained), form) for end in (min, max))
        return " to ".join(ends)

    steps, tokens, flops = span("steps", ","), span("tokens", ","), span("training_flops", ".2g")
    return [f"Each trains {steps} steps: {tokens} tokens, {flops} FLOPs."]


def _cells(run: PlannedRun, costs: dict[str, Any], base: dict[str, Any] | None) -> list[str]:
    is_baseline = run.baseline_id == run.id
    difference = costs["parameters"] - base["parameters"] if base and not is_baseline else None
    return [
        run.label,
        f"{costs['parameters']:,}",
        "" if difference is None else f"{difference:+,}" if difference else "=",
        f"{costs['flops_forward_per_token']:,}",
        f"{costs['mib']:,.1f}",
        "" if costs["peak_mib"] is None else f"{costs['peak_mib']:,.1f}",
        "(baseline)"
        if is_baseline
        else ", ".join(f"{key}: {_say(a)} -> {_say(b)}" for key, (a, b) in run.delta.items()),
    ]


def _say(value: Any) -> str:
    return "null" if value is None else json.dumps(value) if isinstance(value, bool | list | dict) else str(value)
