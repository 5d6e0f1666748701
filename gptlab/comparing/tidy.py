"""A comparison for programs: one flat record per variant, metric and step, with every number and every digit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gptlab.store.study import describe_change

if TYPE_CHECKING:
    from gptlab.comparing.comparison import Comparison
    from gptlab.comparing.rates.arms import TunedArm

# What a record says of its variant, and of one metric of it, in this order. docs/compare-json.md says what each means.
OF_ROW = (
    "study", "baseline", "seeds", "n_planned", "n_finished", "n_failed", "n_diverged", "n_missing", "parameters",
    "parameters_difference", "parameters_percent", "flops", "flops_difference", "flops_percent",
    "matched", "residual_percent", "tuned", "trials", "sensitivity",
)  # fmt: skip
OF_CELL = (
    "n", "mean", "sd", "half_width", "pairs", "expected", "scale", "difference", "relative", "low", "high", "interval",
    "documents", "low_documents", "high_documents",
    "p", "p_corrected", "p_sign_flip", "p_equivalence", "wins", "noise_units", "spread", "effect", "correlation",
    "detectable", "n_needed", "verdict", "note", "exploratory",
)  # fmt: skip

AT_BASELINE = ("difference", "low", "high", "p_corrected", "verdict")  # with the baseline's value of what was tuned


def _rates(arm: TunedArm | None) -> dict[str, Any]:
    """What was tuned, in numbers; None throughout where nothing was."""
    best = arm.optimum if arm else None
    return {
        "key": arm and arm.key, "value": arm and arm.chosen, "edge": arm and arm.edge,
        "values": arm and len(arm.trials), "runs": arm and arm.runs, "lost": arm and arm.lost,
        "optimum": best and best.value, "optimum_low": best and best.low, "optimum_high": best and best.high,
    }  # fmt: skip


def records(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """The values at budgets come first and have a `step`; a comparison without budgets has no such key."""
    at_steps = [(name, step) for name in comparison.step_metrics for step in comparison.steps]
    for name, step in [*at_steps, *((name, None) for name in comparison.metrics)]:
        for row in comparison.rows:
            cell = row.cell(name, step)
            yield {
                "metric": name,
                **({"step": step} if at_steps else {}),
                "variant": row.label,
                "changed": describe_change(dict(row.delta)),
                **{key: getattr(row, key) for key in OF_ROW},
                **{f"tuned_{key}": value for key, value in _rates(row.rates).items()},
                **{f"at_baseline_{key}": getattr(row.at_baseline, key, None) for key in AT_BASELINE},
                **{key: getattr(cell, key) for key in OF_CELL},
            }
