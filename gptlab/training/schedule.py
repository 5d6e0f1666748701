"""Learning rate by step: pure functions, so that a resumed run needs no state of a scheduler.

All give a factor of the peak rate for step 0, 1, ..., total - 1. Warm-up is linear and the same for all, from 1/warmup
at step 0 to 1 at step warmup - 1; what follows starts at the peak and, where it falls, reaches `final_rate` with the
last step. A plugin adds one:

    @register("schedule", "stairs")
    def stairs(step: int, total: int, warmup: int, height: float = 0.5) -> float:
        '''One sentence about it.'''

makes `train.schedule=stairs` and `train.options.schedule.height` exist. It is asked for the steps after warm-up. A
parameter named like a key of `train` is that key, `total` is the number of steps of the run; every other one is an
option. One that does without `total` can also be had with a budget in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gptlab import registry
from gptlab.config import TrainConfig
from gptlab.errors import wrong_value
from gptlab.registry import register


def rate_shares(train: TrainConfig, total: int | None) -> Callable[[int], float]:
    """Step -> share of the peak rate, by the schedule of a checked config. `total`: steps of the run, where known."""
    chosen = registry.get("schedule", train.schedule)
    offered = {**vars(train), "total": total}
    inputs = {name: offered[name] for name in chosen.inputs}
    options = chosen.checked_options(train.options.get("schedule", {}))

    def share(step: int) -> float:
        if step < train.warmup:
            return (step + 1) / train.warmup
        value = float(chosen.factory(step, **inputs, **options))
        if not 0 <= value < math.inf:
            said = f"gave {value} at step {step}; a share of the peak rate is 0 or more."
            raise wrong_value("train.schedule", train.schedule, said, code="schedule-value", step=step)
        return value

    return share


@register("schedule", "constant")
def constant(step: int) -> float:
    """1."""
    return 1.0


@register("schedule", "linear")
def linear(step: int, total: int, warmup: int, final_rate: float) -> float:
    """Straight down over all that is left."""
    return 1 - (1 - final_rate) * _gone(step, total, warmup)


@register("schedule", "cosine")
def cosine(step: int, total: int, warmup: int, final_rate: float) -> float:
    """Half a cosine over all that is left (Loshchilov & Hutter 2016, without restarts)."""
    gone = _gone(step, total, warmup)
    return 1 - (1 - final_rate) * (1 - math.cos(math.pi * gone)) / 2


@register("schedule", "wsd")
def wsd(step: int, total: int, warmup: int, final_rate: float, decay_share: float) -> float:
    """Warm-up, stable, decay: 1, then straight down over the last `decay_share` of the run (Hu et al. 2024)."""
    start = max(warmup, total - max(1, round(decay_share * total)))
    return 1 - (1 - final_rate) * _gone(step, total, start)


def _gone(step: int, total: int, start: int) -> float:
    """0 at the peak, which is `start` or before, and 1 at the last step."""
    return min(1.0, max(0.0, (step - start) / max(1, total - 1 - start)))
