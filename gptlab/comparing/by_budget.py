"""Values at several budgets of training, read from metrics.jsonl: is a variant ahead early, late, or throughout?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gptlab.comparing.comparison import Key
from gptlab.errors import wrong_value
from gptlab.metrics import metric
from gptlab.store.damage import DamagedError
from gptlab.store.records import Record
from gptlab.store.run_tables import read_steps
from gptlab.store.states import OVER

MOST = 5  # budgets side by side
AT_STEPS = {"final_loss": "validation_loss", "final_excess": "excess"}  # a run's number -> the curve that it ends
FALLBACK = "validation_loss", "train_loss"

Values = Mapping[Key, Mapping[int, float]]


def step_metrics(asked: Sequence[str], primary: str) -> tuple[str, ...]:
    """The curves to look at, the wanted one first."""
    wanted = [AT_STEPS.get(name, name) for name in asked or (primary,)]
    for name in wanted:
        metric(name)
    return tuple(dict.fromkeys(wanted if asked else (*wanted, *FALLBACK)))


def step_values(records: Sequence[Record], names: Sequence[str]) -> dict[Key, dict[int, float]]:
    """(metric, step) -> seed -> value, of the runs that have ended. A file that cannot be read costs its run."""
    found: dict[Key, dict[int, float]] = {}
    for record in records:
        if record.state not in OVER:
            continue
        try:
            rows = read_steps(record.folder, {})
        except DamagedError:
            continue
        for row in rows:
            if row["metric"] in names and row["value"] == row["value"] and abs(row["value"]) != float("inf"):
                found.setdefault((row["metric"], row["step"]), {})[record.run.seed] = row["value"]
    return found


def choose_steps(tables: Mapping[str, Values], names: Sequence[str]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Up to five steps that all trained variants have, each about half the next; and the first metric that has any.

    ConfigError when no two variants were evaluated at the same step.
    """
    trained = [table for table in tables.values() if table]
    if not trained:
        raise wrong_value(
            "by",
            "step",
            "none of these runs was trained, or their metrics.jsonl cannot be read.",
            code="by-step-untrained",
        )
    for name in names:
        own = [{step for metric_, step in table if metric_ == name and step} for table in trained]
        common = sorted(set.intersection(*own)) if all(own) else []
        if common:
            return tuple(_halving(common)), (name,)
    raise wrong_value("by", "step", f"no step at which all variants have {' or '.join(names)}.", code="no-common-step")


def _halving(steps: Sequence[int]) -> list[int]:
    chosen = [steps[-1]]
    for step in reversed(steps):
        if len(chosen) < MOST and step <= chosen[-1] / 2:
            chosen.append(step)
    return chosen[::-1]
