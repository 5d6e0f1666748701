"""What a study needs before it can have verdicts: said once, above its tables, with the command that brings it."""

from __future__ import annotations

import shlex

from gptlab.results.comparison import Cell, Comparison
from gptlab.results.evidence import CONFIRMED_FROM, INTERVAL_FROM, ONE_SEED, TWO_SEEDS


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
    """The study's command with as many seeds as a finding takes; those that are there stay, and are not run again."""
    seeds = list(comparison.seeds)
    after = max(seeds, default=0)
    seeds += range(after + 1, after + 1 + CONFIRMED_FROM - len(seeds))
    wanted = f"seed={','.join(map(str, seeds))}"
    words = [word for word in comparison.command if not word.startswith("seed=")]
    return shlex.join([*words, wanted]) if words else wanted


def advice(comparison: Comparison) -> tuple[str, str] | None:
    """Both; None where verdicts are possible."""
    missing = too_few(comparison)
    return (missing, more_seeds(comparison)) if missing else None


def remainder(cell: Cell) -> str:
    """What a cell's reason says beyond the missing seeds: `on 1 of 3 seeds`."""
    return "; ".join(part for part in cell.reason.split("; ") if part not in (ONE_SEED, TWO_SEEDS))
