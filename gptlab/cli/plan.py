"""`gptlab plan`: what would run, and what it would cost, without running it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gptlab import analyses
from gptlab.cli.arguments import Parser
from gptlab.cli.output import tell
from gptlab.planning.costs import cost
from gptlab.planning.plan import Plan, PlannedRun, expand
from gptlab.planning.tuning import at_work, said
from gptlab.running.decisions import Decision, explain, survey
from gptlab.running.stages import reached
from gptlab.store.json_text import json_text
from gptlab.texts import harmless, harmless_json, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

HELP = """\
usage: gptlab plan [KEY=VALUE ...] [--parts] [--format table|json] [--config-dir FOLDER]

Shows the runs that the same words without `plan` would start: for each variant its exact difference to the baseline,
parameters, forward FLOPs per token, memory (weights; peak of the gradient probe or of training, estimated), what each
training would spend, and below that which runs are there already, and what would be done with them. Nothing is run.
`-` stands for a number that cannot be had without running; why is said below. `--parts` counts the parameters and the
forward FLOPs per token of each part of the model, in its first block and in all; the JSON has them always. With
match=params (params_active, params_body, flops, training_flops) it also says what was solved so that a variant costs
what its baseline costs; with tune=learning_rate, how many trials come first and, once they have ended, what they chose:
docs/fairness.md.

  gptlab plan experiment=chapter4
  gptlab plan --parts
  gptlab plan model=gpt3_175b"""
WIDE = 200  # characters in a pipe: as wide as the words need


def main(arguments: Sequence[str]) -> int:
    """Print the plan on stdout, its notes on stderr."""
    parser = Parser(overrides=True)
    parser.option("--format", choices=("table", "json"), default="table")
    parser.switch("--parts")
    given = parser.read(arguments)
    if given.help:
        print(HELP)
        return 0
    plan = reached(expand(given.words, given.config_dirs))
    for note in plan.notes:
        tell(note)
    costs = {run.id: cost(run.config) for run in _variants(plan)}
    decisions = survey(plan, plan.output_dir / plan.study)
    if given.format == "json":
        print(harmless_json(json_text(_document(plan, costs, decisions), indent=1)))
    else:
        _print_tables(plan, costs, given.parts)
        if plan.analysis:
            print(f"Then the analysis {analyses.describe(plan.runs[0].config.experiment)}")
        work = at_work(plan)
        for line in explain(work.runs, survey(work, plan.output_dir / plan.study)):
            print(harmless(line))
    return 0


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


def _print_tables(plan: Plan, costs: dict[str, dict[str, Any]], parts: bool) -> None:
    from gptlab.show.layout import written

    with written(piped=WIDE) as console:
        _print_table(console, plan, costs)
        if parts:
            _print_parts(console, plan, costs)


def _print_table(console: Console, plan: Plan, costs: dict[str, dict[str, Any]]) -> None:
    from rich.text import Text

    from gptlab.show.layout import print_whole

    table = _table("variant", "parameters", "difference", "FLOPs/token", "weights MiB", "peak MiB", "changed")
    labels = {run.id: run.label for run in plan.runs}
    by_label = {run.label: costs[run.id] for run in _variants(plan)}
    for run in _variants(plan):
        base = by_label.get(labels.get(run.baseline_id or "", ""))
        table.add_row(*(Text(printable(cell)) for cell in _cells(run, by_label[run.label], base)))
    print_whole(console, table)
    for label, found in by_label.items():
        for why, names in _reasons(found["missing"]).items():
            console.print(Text(printable(f"{label}: {', '.join(names)}: -, because {why}.")), soft_wrap=True)
    for label, found in by_label.items():
        if active := found.get("parameters_active"):
            words = f"{label}: one token meets {active:,} of its {found['parameters']:,} parameters."
            console.print(Text(printable(words)), soft_wrap=True)
    for label, twin in plan.twins.items():
        console.print(Text(printable(f"{label}: matched: {twin.words}.")), soft_wrap=True)
    seeds = list(dict.fromkeys(run.seed for run in plan.runs))
    named = (
        f"seeds {', '.join(map(str, seeds[:8]))}{', ...' if len(seeds) > 8 else ''}" if len(seeds) > 1 else "one seed"
    )
    runs = f"{len(plan.runs)} {'runs' if len(plan.runs) > 1 else 'run'}{' that decide' if plan.tuning else ''}"
    words = f"{runs} ({named}), in {plan.output_dir}/{plan.study}/."
    sentences = " ".join([words, *_training(list(by_label.values())), "Nothing was run."])
    console.print(Text(printable(sentences)), soft_wrap=True)
    if plan.tuning:  # last, for the runs above are not all that it costs
        console.print(Text(printable(said(plan))), soft_wrap=True)


def _print_parts(console: Console, plan: Plan, costs: dict[str, dict[str, Any]]) -> None:
    """Parameters and forward FLOPs per token by part: of the first block, and of the whole model."""
    from rich.text import Text

    from gptlab.show.layout import print_whole

    table = _table(
        "variant",
        "part",
        "parameters\nof block 0",
        "parameters",
        "share",
        "FLOPs/token\nof block 0",
        "FLOPs/token",
        "share",
    )
    for run in _variants(plan):
        cost = costs[run.id]
        sizes = {key.removeprefix("parameters/"): size for key, size in cost.items() if key.startswith("parameters/")}
        flops, total = cost["flops_by_part"], cost["flops_forward_per_token"]
        for part in dict.fromkeys([*sizes, *(flops or {})]):
            counted = [*_part(part, cost["block"], sizes, cost["parameters"])]
            counted += ["-"] * 3 if flops is None else _part(part, cost["block_flops"], flops, total)
            table.add_row(*(Text(printable(cell)) for cell in (run.label, part, *counted)))
    print_whole(console, table)


def _part(part: str, block: dict[str, float], model: dict[str, float], total: float) -> list[str]:
    """Cells: of the first block, of the model, and the share of the whole. Empty where the part has none."""
    return [
        f"{block[part]:,}" if part in block else "",
        f"{model[part]:,}" if part in model else "",
        f"{model[part] / total:.1%}" if part in model else "",
    ]


def _table(*headings: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        words = heading in ("variant", "part", "changed")
        table.add_column(heading, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    return table


def _reasons(missing: dict[str, str]) -> dict[str, list[str]]:
    """Why -> what is missing for it."""
    found: dict[str, list[str]] = {}
    for name, why in missing.items():
        found.setdefault(why, []).append(name)
    return found


def _training(costs: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence on what each run trains for; variants that differ are given as a range."""
    trained = [cost for cost in costs if "steps" in cost]
    if not trained:
        return []

    def span(key: str, form: str) -> str:
        known = [cost[key] for cost in trained if cost[key] is not None]
        return " to ".join(dict.fromkeys(format(end(known), form) for end in (min, max))) if known else "-"

    steps, tokens, flops = span("steps", ","), span("tokens", ","), span("training_flops", ".2g")
    return [f"Each trains {steps} steps: {tokens} tokens, {flops} FLOPs."]


def _cells(run: PlannedRun, costs: dict[str, Any], base: dict[str, Any] | None) -> list[str]:
    is_baseline = run.baseline_id == run.id
    difference = costs["parameters"] - base["parameters"] if base and not is_baseline else None
    return [
        run.label,
        f"{costs['parameters']:,}",
        "" if difference is None else f"{difference:+,}" if difference else "=",
        "-" if costs["flops_forward_per_token"] is None else f"{costs['flops_forward_per_token']:,}",
        f"{costs['mib']:,.1f}",
        f"{costs['peak_mib']:,.1f}" if costs["peak_mib"] is not None else "-" if "peak_mib" in costs["missing"] else "",
        "(baseline)"
        if is_baseline
        else ", ".join(f"{key}: {_say(a)} -> {_say(b)}" for key, (a, b) in run.delta.items()),
    ]


def _say(value: Any) -> str:
    return "null" if value is None else json.dumps(value) if isinstance(value, bool | list | dict) else str(value)
