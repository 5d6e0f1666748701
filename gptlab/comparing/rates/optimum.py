"""Where a key is best, between the values that were tried: the bottom of a parabola in its logarithm.

Through the best value and up to two neighbours on each side, with an intercept for each seed, since seeds differ more
than neighbouring values do. The interval is Fieller's: all places at which the slope of the parabola cannot be told
from zero. It has no end where the curvature cannot be told from none, and then there is no interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gptlab.comparing import statistics as stats
from gptlab.tuned import Trial, best_place

NEIGHBOURS = 2  # on each side, as far as they were tried


@dataclass(frozen=True)
class Optimum:
    """In the key's own unit. `low` and `high`: 95 % interval, None where there is none."""

    value: float
    low: float | None = None
    high: float | None = None


def optimum(trials: Sequence[Trial], lower: bool) -> Optimum | None:
    """Of rising values; None where the best one lies at the edge, or no parabola opens the right way around it."""
    place = best_place(trials, lower)
    window = [trial for trial in trials[max(0, place - NEIGHBOURS) : place + NEIGHBOURS + 1] if not trial.lost]
    center = trials[place].value
    if not (any(t.value < center for t in window) and any(t.value > center for t in window)):
        return None
    xs = [math.log(trial.value / center) for trial in window]
    seeds = sorted(set.intersection(*(set(trial.outcomes) for trial in window)))
    sign = 1.0 if lower else -1.0
    rows = [[sign * (trial.outcomes[seed].score or 0.0) for trial in window] for seed in seeds]
    return _bottom(xs, rows, center)


def _bottom(xs: Sequence[float], rows: Sequence[Sequence[float]], center: float) -> Optimum | None:
    """`rows`: for each seed the costs at `xs` (logarithms, 0 at `center`)."""
    import numpy as np

    x = np.asarray(xs)
    design = np.stack([x - x.mean(), x**2 - (x**2).mean()], axis=1)
    costs = np.asarray(rows)
    costs = costs - costs.mean(axis=1, keepdims=True)
    inverse = np.linalg.inv(design.T @ design) / len(rows)  # of the whole design, the seeds one below the other
    slope, bend = (float(value) for value in inverse @ (design.T @ costs.sum(axis=0)))
    bottom = -slope / (2 * bend) if bend > 0 else math.inf
    if not min(xs) <= bottom <= max(xs):
        return None
    residual = costs - design @ np.asarray([slope, bend])
    df = len(rows) * (len(xs) - 1) - 2
    if df < 1:
        return Optimum(center * math.exp(bottom))
    ends = _fieller(slope, bend, inverse * float((residual**2).sum()) / df, stats.t_quantile(df))
    low, high = (center * math.exp(end) for end in ends) if ends else (None, None)
    return Optimum(center * math.exp(bottom), low, high)


def _fieller(slope: float, bend: float, spread: object, t: float) -> tuple[float, float] | None:
    """Where (slope + 2 bend x)^2 <= t^2 times its variance; None unless that is one stretch with two ends."""
    (ss, sb), (_, bb) = spread.tolist()  # type: ignore[attr-defined]
    a = 4 * (bend**2 - t**2 * bb)
    b = 4 * (slope * bend - t**2 * sb)
    c = slope**2 - t**2 * ss
    root = b**2 - 4 * a * c
    if a <= 0 or root < 0:
        return None
    return (-b - math.sqrt(root)) / (2 * a), (-b + math.sqrt(root)) / (2 * a)
