"""Tuned keys: which value is best for an arm, and which one is tried next. Numbers in, numbers out.

An arm is a variant with a value of its own. Every arm tries equally many values on a logarithmic grid around the one
that it declares; where a best value lies at the edge of its grid, every arm tries one more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Protocol:
    """What is fixed before the first trial. `lower`: whether a lower `metric` is better."""

    key: str
    factor: float
    points: int
    max_trials: int
    seeds: tuple[int, ...]
    metric: str
    lower: bool

    @property
    def name(self) -> str:
        """The key without its section: `learning_rate`."""
        return self.key.rpartition(".")[2]


@dataclass(frozen=True)
class Outcome:
    """One trial that has ended. `score`: the metric, None where it has no finite one; losses in nats per token."""

    score: float | None
    diverged: bool = False
    initial: float | None = None
    final: float | None = None


@dataclass(frozen=True)
class Trial:
    """One value of the key, tried on every tuning seed. `outcomes`: seed -> what came of it."""

    value: float
    outcomes: Mapping[int, Outcome] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        """How many seeds diverged, or have no number."""
        return sum(outcome.diverged or outcome.score is None for outcome in self.outcomes.values())

    def cost(self, lower: bool) -> float:
        """The mean over the seeds, to be made small. Infinite where a seed was lost: such a value is not chosen."""
        scores = [outcome.score for outcome in self.outcomes.values() if outcome.score is not None]
        if self.lost or not scores:
            return math.inf
        return math.fsum(scores) / len(scores) * (1 if lower else -1)


def rounded(value: float) -> float:
    """A value of a grid, with digits that a person would type; powers of two times such a value stay exact."""
    return float(f"{value:.6g}")


def grid(start: float, factor: float, points: int) -> tuple[float, ...]:
    """`points` values around `start`, rising by `factor`; of an even number, the extra one lies below."""
    return tuple(rounded(start * factor**power) for power in range(-(points // 2), (points + 1) // 2))


def best_place(trials: Sequence[Trial], lower: bool) -> int:
    """The place of the best value among the rising ones; of equals the lowest, and of none that survived too."""
    costs = [trial.cost(lower) for trial in trials]
    return costs.index(min(costs))


def at_edge(trials: Sequence[Trial], lower: bool) -> bool:
    """Whether the best value lacks a neighbour on one side, so that the optimum may lie beyond."""
    return best_place(trials, lower) in (0, len(trials) - 1)


def next_values(arms: Mapping[str, Sequence[Trial]], protocol: Protocol) -> dict[str, float]:
    """Arm -> the value that it tries next; empty where all are bracketed, or have had their trials.

    An arm whose best value lies at an edge goes on there. The others get as many trials: on the side of their best
    value where fewer have been tried.
    """
    if not any(at_edge(trials, protocol.lower) for trials in arms.values()):
        return {}
    if max(map(len, arms.values())) >= protocol.max_trials:
        return {}
    found = {}
    for arm, trials in arms.items():
        below = best_place(trials, protocol.lower)
        down = below < len(trials) - 1 - below
        found[arm] = rounded(trials[0].value / protocol.factor if down else trials[-1].value * protocol.factor)
    return found


def most_runs(arms: int, protocol: Protocol) -> tuple[int, int]:
    """How many trials run at least and at most, over all arms and tuning seeds."""
    each = arms * len(protocol.seeds)
    return protocol.points * each, max(protocol.points, protocol.max_trials) * each
