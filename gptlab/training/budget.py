"""How long a run goes on: a budget in one unit. What was spent is recorded in all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gptlab.config import Config
from gptlab.errors import wrong_value
from gptlab.model import skeleton
from gptlab.probes.dry_run import UncountableError
from gptlab.probes.parameters import flops_per_token


@dataclass
class Spent:
    """What a run has used up so far. `seconds`: in training steps, without evaluations, probes and checkpoints."""

    step: int = 0
    tokens: int = 0
    flops: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Budget:
    """`amount` of `unit` (steps, tokens, flops or seconds), and what one step costs."""

    unit: str
    amount: float
    tokens_per_step: int
    flops_per_step: float  # NaN where they cannot be counted
    uncounted: str = ""  # why not

    @classmethod
    def of(cls, config: Config) -> Budget:
        """The budget that a settled config declares. FLOPs are those of the matrix products, forward and backward."""
        train = config.train
        assert train.budget is not None
        assert train.context is not None
        tokens = train.batch_size * train.context
        try:
            flops = 3.0 * round(flops_per_token(skeleton(config.model), config.model, train.context).forward) * tokens
        except UncountableError as error:
            if train.budget_unit == "flops":
                raise wrong_value(
                    "train.budget_unit", "flops", f"FLOPs cannot be counted: {error}.", code="flops-uncountable"
                ) from error
            return cls(train.budget_unit, train.budget, tokens, math.nan, str(error))
        return cls(train.budget_unit, train.budget, tokens, flops)

    @property
    def steps(self) -> int | None:
        """The number of steps: the first at which the budget is used up, at least 1. None: seconds decide."""
        if self.unit == "seconds":
            return None
        each = {"steps": 1, "tokens": self.tokens_per_step, "flops": self.flops_per_step}[self.unit]
        return max(1, math.ceil(self.amount / each)) if each else 1

    def used_up(self, spent: Spent) -> bool:
        """Whether the run is over."""
        return spent.seconds >= self.amount if self.steps is None else spent.step >= self.steps

    def add_step(self, spent: Spent, seconds: float) -> None:
        """Account for one more step."""
        spent.step += 1
        spent.tokens += self.tokens_per_step
        spent.flops += self.flops_per_step
        spent.seconds += seconds

    def seconds_left(self, spent: Spent) -> float | None:
        """At the speed so far; None before the first step."""
        if self.steps is None:
            return max(0.0, self.amount - spent.seconds)
        return (self.steps - spent.step) * spent.seconds / spent.step if spent.step else None
