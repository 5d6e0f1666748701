"""The arithmetic of a comparison: means, paired differences, tests, corrections. Numbers in, numbers out.

Differences are paired by seed, so everything rests on one list: variant minus baseline, seed by seed. Student's t has
the right coverage from three seeds on where the bootstrap and the normal quantile do not (about 75 % and 81 % instead
of 95 %), so it is what stands here. scipy is loaded with the first number that needs it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

ALPHA = 0.05
SIGN_FLIP_FROM, SIGN_FLIP_TO = 8, 30  # below, its smallest p cannot survive a correction; above, it takes too long
RESOLUTION = 2.0**-23  # of float32: a spread below it is rounding, not seeds


@dataclass(frozen=True)
class Paired:
    """A list of paired differences, summed up. `low` and `high`: 95 % t interval. `p`: two-sided, against zero."""

    n: int
    mean: float
    sd: float
    low: float
    high: float
    p: float


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean; `values` may not be empty."""
    return math.fsum(values) / len(values)


def sd(values: Sequence[float]) -> float | None:
    """The sample standard deviation (n - 1); None for fewer than two values."""
    if len(values) < 2:
        return None
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def half_width(spread: float | None, n: int) -> float | None:
    """Half the 95 % t interval of a mean; None below three values: two make a range, not an interval."""
    if spread is None or n < 3:
        return None
    return t_quantile(n - 1) * spread / math.sqrt(n)


def paired(differences: Sequence[float]) -> Paired:
    """Student's t on two or more paired differences that are not all the same."""
    n, middle, spread = len(differences), mean(differences), sd(differences)
    assert spread, "the caller has words for a difference without spread"
    error = spread / math.sqrt(n)
    reach = t_quantile(n - 1) * error
    p = 2 * float(_special().stdtr(n - 1, -abs(middle / error)))
    return Paired(n, middle, spread, middle - reach, middle + reach, min(p, 1.0))


def equivalence(middle: float, spread: float, n: int, low: float, high: float) -> float:
    """p of the two one-sided t tests that the true mean difference lies between `low` and `high`."""
    return equivalence_by(middle, spread / math.sqrt(n), n - 1, low, high)


def equivalence_by(middle: float, error: float, df: int, low: float, high: float) -> float:
    """The same, from a standard error with `df` degrees of freedom."""
    stdtr = _special().stdtr
    return float(max(stdtr(df, -(middle - low) / error), stdtr(df, (middle - high) / error)))


@functools.cache
def t_quantile(df: int) -> float:
    """The two-sided 95 % quantile of Student's t: 12.7 for one degree of freedom, 2.78 for four."""
    return float(_special().stdtrit(df, 1 - ALPHA / 2))


def sign_flip(differences: Sequence[float]) -> float:
    """Exact two-sided sign-flip test: how often a random choice of signs gives a sum at least as far from zero.

    All 2^n choices are counted, through the sums of two halves, so that thirty seeds need no 2^30 steps.
    """
    import numpy as np

    sizes = np.abs(np.asarray(differences, dtype=np.float64))
    target = abs(math.fsum(differences))
    target -= 1e-14 * float(sizes.sum()) + 100 * np.finfo(float).eps * target  # equal sums, added in another order
    left, right = np.zeros(1), np.zeros(1)
    for place, size in enumerate(sizes):
        if place % 2:
            left = np.concatenate([left - size, left + size])
        else:
            right = np.concatenate([right - size, right + size])
    left.sort()  # in order, the searches below stay near each other: ten times faster for thirty seeds
    right.sort()
    above = len(right) - np.searchsorted(right, target - left, side="left")
    below = np.searchsorted(right, -target - left, side="right")
    return float(min(1.0, (int(above.sum()) + int(below.sum())) / 2 ** len(sizes)))


def holm(ps: Sequence[float], size: int = 0) -> list[float]:
    """Holm's step-down adjustment: the chance of even one false finding stays below 5 %.

    `size`: tests that were planned, where more than these; the missing ones count as if they had found nothing, so that
    no adjusted p can rise when they come.
    """
    size = max(size, len(ps))
    order = sorted(range(len(ps)), key=ps.__getitem__)
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (size - rank) * ps[place]))
        adjusted[place] = highest
    return adjusted


def benjamini_hochberg(ps: Sequence[float], size: int = 0) -> list[float]:
    """Benjamini and Hochberg's step-up adjustment: of the findings, at most 5 % are expected to be false. `size`: as
    for `holm`."""
    size = max(size, len(ps))
    order = sorted(range(len(ps)), key=ps.__getitem__, reverse=True)
    adjusted, lowest = [0.0] * len(ps), 1.0
    for rank, place in enumerate(order):
        lowest = min(lowest, size / (len(ps) - rank) * ps[place])
        adjusted[place] = lowest
    return adjusted


def correlation(one: Sequence[float], two: Sequence[float]) -> float | None:
    """Pearson's correlation of paired values; None below three pairs or where either does not vary."""
    if len(one) < 3 or flat(one) or flat(two):
        return None
    a, b = mean(one), mean(two)
    products = math.fsum((x - a) * (y - b) for x, y in zip(one, two, strict=True))
    squares = math.fsum((x - a) ** 2 for x in one) * math.fsum((y - b) ** 2 for y in two)
    return max(-1.0, min(1.0, products / math.sqrt(squares))) if squares else None


def flat(values: Sequence[float], size: float | None = None) -> bool:
    """Whether `values` differ by no more than float32 can resolve in numbers of `size` (their own by default)."""
    size = max(map(abs, values)) if size is None else size
    return max(values) - min(values) <= 2 * RESOLUTION * size


def _special() -> Any:
    from scipy import special

    return special
