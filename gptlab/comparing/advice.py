"""What a study needs before it can have verdicts: said once, above its tables, with the command that brings it."""

from __future__ import annotations

import shlex
from collections import Counter

from gptlab.comparing.comparison import Cell, Comparison
from gptlab.comparing.evidence import CONFIRMED_FROM, INTERVAL_FROM, ONE_SEED, TWO_SEEDS


def too_few(comparison: Comparison) -> str:
    """Why no metric can have a verdict, where that is for want of seeds; else empty."""
    if not 0 < comparison.most_pairs < INTERVAL_FROM or not comparison.has_too_few:
        return ""
    words = ONE_SEED if comparison.most_pairs == 1 else TWO_SEEDS
    return (
        f"{words[0].upper()}{words[1:]}. Verdicts take {INTERVAL_FROM} seeds or more, and are exploratory below "
        f"{CONFIRMED_FROM}."
    )


def more_seeds(comparison: Comparison) -> str:
    """The study's command with as many seeds as a finding takes; what is there stays, and is not run again.

    Planned runs that failed or are missing count among these seeds, since the command runs them. Diverged ones
    without a number do not: they would diverge again.
    """
    seeds = sorted({seed for row in comparison.rows for seed in row.runs})
    after = max(seeds, default=0)
    seeds += range(after + 1, after + 1 + CONFIRMED_FROM - _within_reach(comparison))
    retry = ["retry_failed=true"] if {"failed", "damaged"} & _lost(comparison).keys() else []
    words = [word for word in comparison.command if not word.startswith(("seed=", "retry_failed="))]
    return shlex.join([*words, f"seed={','.join(map(str, seeds))}", *retry])


def advice(comparison: Comparison) -> tuple[str, str] | None:
    """What is missing, and the command that brings it; None where verdicts are possible."""
    missing = too_few(comparison)
    if not missing:
        return None
    lost = ", ".join(f"{number} {state}" for state, number in _lost(comparison).items())
    return (f"{missing} Of the planned runs: {lost}." if lost else missing), more_seeds(comparison)


def _lost(comparison: Comparison) -> Counter[str]:
    """State -> number of planned runs that have not finished."""
    states = [record.state for row in comparison.rows for record in row.runs.values()]
    return Counter(state for state in sorted(states) if state != "finished")


def _within_reach(comparison: Comparison) -> int:
    """Planned seeds that a variant could share with its baseline, at the most, once all that can be run has been."""
    primary = comparison.primary_metric
    could = {
        row.label: {seed for seed, run in row.runs.items() if run.state != "diverged" or primary in run.metrics}
        for row in comparison.rows
    }
    shared = (could[row.label] & could[row.baseline] for row in comparison.rows if row.baseline is not None)
    return max(map(len, shared), default=0)


def remainder(cell: Cell) -> str:
    """What a cell's reason says beyond the missing seeds: `on 1 of 3 seeds`."""
    if cell.reason in ("", ONE_SEED, TWO_SEEDS):
        return ""
    return "; ".join(part for part in cell.reason.split("; ") if part not in (ONE_SEED, TWO_SEEDS))
