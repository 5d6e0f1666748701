"""Learning rate by step: pure functions, so that a resumed run needs no state of a scheduler.

All give a factor between 0 and 1 of the peak rate for step 0, 1, ..., total - 1. Warm-up is linear, from 1/warmup at
step 0 to 1 at step warmup - 1; what follows starts at the peak and reaches `final` with the last step.

    constant   1
    linear     straight down over all that is left
    cosine     half a cosine over all that is left (Loshchilov & Hutter 2016, without restarts)
    wsd        warm-up, stable, decay: 1, then straight down over the last `decay` share of the run (Hu et al. 2024)
"""

from __future__ import annotations

import math


def factor(
    schedule: str, step: int, total: int | None, *, warmup: int = 0, final: float = 0.0, decay: float = 0.2
) -> float:
    """The share of the peak rate at `step`. `total`: steps of the run; only `constant` does without."""
    if step < warmup:
        return (step + 1) / warmup
    if schedule == "constant":
        return 1.0
    assert total is not None, "check_training refuses this"
    start = warmup
    if schedule == "wsd":
        start = max(warmup, total - max(1, round(decay * total)))
    gone = (step - start) / max(1, total - 1 - start)  # 0 at the peak, 1 at the last step
    if gone <= 0:
        return 1.0
    gone = min(gone, 1.0)
    if schedule == "cosine":
        gone = (1 - math.cos(math.pi * gone)) / 2
    return 1 - (1 - final) * gone
