"""When something is due that comes every so many steps, or every share of the run."""

from __future__ import annotations

import dataclasses
import math

from gptlab.config import TrainConfig
from gptlab.training.budget import Budget, Spent

FIRST = 0.01  # of the peak rate, where a warm-up by the clock begins


class Interval:
    """Due at each multiple of `every`: steps, or below 1 a share of the run; None is never."""

    def __init__(self, every: float | None, budget: Budget, spent: Spent) -> None:
        """`spent`: where the run stands, which is not 0 where it goes on."""
        self._every = whole_steps(every, budget) if every else None
        self._budget = budget
        self._passed = self._marks(spent)

    def is_due(self, spent: Spent) -> bool:
        """Whether the step that comes next ends at a multiple; of a share of a time, whether one was passed."""
        if self._every is None or self._every >= 1:
            return bool(self._every) and (spent.step + 1) % int(self._every or 1) == 0
        before, self._passed = self._passed, self._marks(spent)
        return self._passed > before

    def _marks(self, spent: Spent) -> int:
        """How many multiples of a share of a time have passed."""
        shared = self._every is not None and self._every < 1
        return math.floor(spent.seconds / (self._every * self._budget.amount)) if shared and self._every else 0


def whole_steps(every: float, budget: Budget) -> float:
    """A share of the run in steps, where its length in steps is known; anything else as it is."""
    if every >= 1 or not every or budget.steps is None:
        return every
    return max(1, round(every * budget.steps))


def in_steps(train: TrainConfig, budget: Budget) -> TrainConfig:
    """A copy with the warm-up in steps: 0 where it goes by the clock, which `clocked_warmup` does then."""
    warmup = whole_steps(train.warmup, budget)
    return dataclasses.replace(train, warmup=warmup if warmup >= 1 else 0)


def clocked_warmup(train: TrainConfig, budget: Budget, spent: Spent) -> float:
    """The share of the peak rate in a run whose budget is a time: a straight line over the first `warmup` of it."""
    if budget.steps is not None or not train.warmup:
        return 1.0
    return min(1.0, max(FIRST, spent.seconds / (train.warmup * budget.amount)))
