"""The ten lines of an audit, each from a study's files: what was fixed, tuned, matched, repeated, finished and shown.

The records that `tune`, `match` and `ladder` keep in plan.json are described in docs/audit.md.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

from gptlab.comparing.comparison import TO_COME, Comparison
from gptlab.comparing.evidence import CONFIRMED_FROM
from gptlab.metrics import METRICS
from gptlab.store.json_text import json_text
from gptlab.store.plan_history import additions, variants_of
from gptlab.store.records import Record

Status = Literal["pass", "fail", "not asked"]
PASS: Final = "pass"
FAIL: Final = "fail"
NOT_ASKED: Final = "not asked"
RULE = ("key", "factor", "points", "max_trials", "seeds")  # of a tuning: what is fixed before its first trial
SIZES, SPAN = 3, 10.0  # of a ladder: how many, and the largest over the smallest


@dataclass(frozen=True)
class Line:
    """One line of the protocol. `mend`: the command that would change it; empty where none would."""

    name: str
    status: Status
    reason: str
    mend: str = ""


def record(plan: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """What a plan records under `key`; empty where it records nothing."""
    found = plan.get(key)
    return found if isinstance(found, dict) else {}


def _seeds_of(plan: Mapping[str, Any]) -> set[tuple[str, Any]]:
    variants = variants_of(plan)
    if record(plan, "tune"):  # what decides is an arm on a seed: at which value, the trials say
        return {(str(run.get("label")), run.get("seed")) for run in plan.get("runs") or () if run.get("id") in variants}
    return {(variants[run["id"]], run.get("seed")) for run in plan.get("runs") or () if run.get("id") in variants}


def protocol(plan: Mapping[str, Any]) -> str:
    """SHA-256 of what a plan fixes: metric, margin, baseline, which runs, and how they are tuned."""
    runs = sorted(str(run.get("id")) for run in plan.get("runs") or () if isinstance(run, dict))
    fixed = [plan.get("primary_metric"), plan.get("margin"), plan.get("baseline"), runs, *_rule(plan)]
    return sha256(json_text(fixed).encode()).hexdigest()


def _rule(plan: Mapping[str, Any]) -> list[Any]:
    """How a plan tunes; empty where it does not."""
    tune = record(plan, "tune")
    return [[tune.get(name) for name in RULE]] if tune else []


def fixed(first: Mapping[str, Any], latest: Mapping[str, Any], comparison: Comparison, command: str) -> Line:
    """The first plan that is kept is older than every run, and says what the latest one says."""
    name = "metric, seeds and margin fixed before the first run"
    starts = sorted(filter(None, (run.started for row in comparison.rows for run in row.runs.values())))
    planned = str(first.get("created") or "")
    if not planned:
        return Line(name, FAIL, "the first plan does not say when it was made")
    if starts and starts[0] < planned:
        return Line(name, FAIL, f"a run began at {starts[0]}, before the first plan that is kept ({planned})")
    changed = [key for key in ("primary_metric", "margin") if first.get(key) != latest.get(key)]
    if changed:
        words = ", ".join(f"{key} was {first.get(key)} and is {latest.get(key)}" for key in changed)
        return Line(name, FAIL, f"changed after the first plan: {words}")
    if _rule(first) != _rule(latest):
        return Line(name, FAIL, "how rates are tuned was changed after the first plan")
    late = _seeds_of(latest) - _seeds_of(first)
    if late:
        return Line(name, FAIL, f"{len(late)} runs of the latest plan are not in the first one")
    if not first.get("margin"):
        words = "metric and seeds are fixed; no difference was named that does not matter"
        return Line(name, NOT_ASKED, words, f"{command} experiment.margin=1%")
    return Line(name, PASS, f"plan {protocol(first)[:12]} of {planned}")


def sizes(ladder: Mapping[str, Any], command: str) -> Line:
    """How many sizes were compared, and how far apart."""
    name = "three sizes over 10x"
    sizes = _sizes_of(ladder)
    if not ladder:
        return Line(name, NOT_ASKED, "one size", f"{command} ladder=small")
    if len(sizes) < SIZES or sizes[-1] < SPAN * sizes[0]:
        span = f", the largest {sizes[-1] / sizes[0]:.1f} times the smallest" if sizes else ""
        return Line(name, FAIL, f"{len(sizes)} sizes{span}")
    return Line(name, PASS, f"{len(sizes)} sizes, the largest {sizes[-1] / sizes[0]:.0f} times the smallest")


def _sizes_of(ladder: Mapping[str, Any]) -> list[float]:
    """The sizes of a ladder in parameters, rising."""
    found = ladder.get("parameters")
    return sorted(n for n in (found if isinstance(found, list) else ()) if isinstance(n, int | float) and n > 0)


def seeds(folder: Path, comparison: Comparison) -> Line:
    """Pairs of the primary metric, and whether any came after looking."""
    name = "five seeds on both arms, none added after looking, paired, corrected"
    metric = comparison.primary_metric
    cells = {row.label: row.cell(metric) for row in comparison.rows if row.baseline is not None}
    if not cells:
        return Line(name, NOT_ASKED, "nothing is compared")
    if metric in METRICS and METRICS[metric].kind == "exact":
        return Line(name, PASS, f"{metric} is counted, and does not vary with the seed")
    late = sorted({seed for addition in additions(folder) for seed in addition.seeds})
    if late:
        results = additions(folder)[0].results
        return Line(name, FAIL, f"seeds {', '.join(map(str, late))} were added when there were {results} results")
    waiting = [label for label, cell in cells.items() if TO_COME in cell.lost]
    if waiting:
        return Line(name, FAIL, f"unfinished: {', '.join(waiting)}", shlex.join(comparison.command))
    few = {label: cell.pairs for label, cell in cells.items() if cell.pairs < CONFIRMED_FROM}
    if few:
        return Line(name, FAIL, _too_few(few, len(cells), max(len(row.runs) for row in comparison.rows)))
    pairs = min(cell.pairs for cell in cells.values())
    how = "Dunnett" if comparison.pooled else "Holm"
    return Line(name, PASS, f"{pairs} pairs or more, {how} over {len(cells)} planned variants")


def _too_few(pairs: Mapping[str, int], arms: int, planned: int) -> str:
    """`2 seeds were planned`, or which arms have fewer pairs than a finding takes: seeds that both finished."""
    needed = f"a finding takes {CONFIRMED_FROM}"
    if planned < CONFIRMED_FROM and len(pairs) == arms and set(pairs.values()) == {planned}:
        return f"{'one seed was' if planned == 1 else f'{planned} seeds were'} planned: {needed}"
    found: dict[int, list[str]] = {}
    for label, number in pairs.items():
        found.setdefault(number, []).append(label)
    words = [
        f"{listed(labels)} {'has' if len(labels) == 1 else 'have'} {number or 'no'} seed{'' if number == 1 else 's'}"
        for number, labels in sorted(found.items())
    ]
    return f"with a number beside the baseline's, {'; '.join(words)}: {needed}"


def listed(labels: Sequence[str]) -> str:
    """The first four, and how many more."""
    return ", ".join(labels[:4]) + (f" and {len(labels) - 4:,} more" if len(labels) > 4 else "")


def ended(comparison: Comparison, command: str) -> Line:
    """Every training that did not diverge used its whole budget."""
    name = "schedules run to their end"
    runs = [run for row in comparison.rows for run in row.runs.values()]
    trained = [run for run in runs if run.outcome or "final_loss" in run.metrics]
    if not trained:
        return Line(name, NOT_ASKED, "nothing was trained")
    short = [f"{run.run.label} seed {run.run.seed}" for run in trained if run.state not in ("finished", "diverged")]
    if short:
        return Line(name, FAIL, f"not finished: {', '.join(short[:4])}{', ...' if len(short) > 4 else ''}", command)
    broke = [f"{run.run.label} seed {run.run.seed}" for run in trained if run.not_finite or _short_of_budget(run)]
    if broke:
        return Line(
            name, FAIL, f"ended before their schedule: {', '.join(broke[:4])}{', ...' if len(broke) > 4 else ''}"
        )
    return Line(name, PASS, f"{len(trained)} trainings used their whole budget")


def _short_of_budget(run: Record) -> bool:
    """Whether a budget in steps or tokens was not used up; budgets in FLOPs and seconds are by their end only."""
    if run.budget is None:
        return False
    unit, budget = run.budget
    done = run.metrics.get(unit)
    return done is None or done < budget


def law(ladder: Mapping[str, Any], command: str) -> Line:
    """A fitted law was held against the largest size, which it had not seen."""
    name = "the law tested on a held-out size"
    law = record(ladder, "law")
    if not law:
        return Line(name, NOT_ASKED, "no law was fitted", f"{command} ladder=small")
    sizes, known = len(_sizes_of(ladder)), bool(law.get("entropy_known"))
    error = law.get("held_out_error_percent")
    if not isinstance(error, int | float) or sizes < (4 if known else 5):
        return Line(name, FAIL, f"{sizes} sizes; held-out error {error}")
    return Line(name, PASS, f"the largest of {sizes} sizes was held out: off by {error:.2g} %")


def capability(comparison: Comparison) -> Line:
    """Whether anything but a loss was measured."""
    name = "a capability measured beside the loss"
    found = [metric for metric in comparison.metrics if metric.startswith("task/") or metric == "accuracy"]
    return Line(name, PASS, ", ".join(found)) if found else Line(name, NOT_ASKED, "losses and gradients alone")
