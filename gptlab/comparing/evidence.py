"""One cell: from the values of a variant and its baseline, seed by seed, to a difference and a verdict in words.

`compared` tests, the correction over the family of tests follows, and `decided` has the last word. A verdict is about
what was planned: pairs that are still to come leave it open, pairs that have no number for good (a divergence, a
failure) are part of it, and what lost any of them is never called better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gptlab.comparing import power
from gptlab.comparing import statistics as stats
from gptlab.comparing.comparison import (
    BETTER,
    DIFFERENT,
    EQUIVALENT,
    NOT_COMPARABLE,
    TO_COME,
    TOO_FEW,
    UNCLEAR,
    UNFINISHED,
    WORSE,
    Cell,
    replace,
)
from gptlab.margin import Margin
from gptlab.metrics import Metric

CONFIRMED_FROM = 5  # pairs: with fewer, a finding is marked exploratory
INTERVAL_FROM = 3
ONE_SEED = "one seed: cannot be told from noise"
TWO_SEEDS = "two seeds: a range, not an interval"
FLATTERED = {"diverged", "not finite"}  # a variant without these seeds looks better than it is: it may still be worse
Values = Mapping[int, float]  # seed -> value
_EMPTY = Cell("")


def summary(metric: Metric, step: int | None, values: Values) -> Cell:
    """What a variant's own values say: n, mean, sd."""
    numbers = list(values.values())
    cell = replace(_EMPTY, metric=metric.name, step=step, n=len(numbers))
    if not numbers:
        return cell
    if metric.kind != "exact":
        spread = stats.sd(numbers)
        half = stats.half_width(spread, len(numbers))
        return replace(cell, mean=stats.mean(numbers), sd=spread, half_width=half)
    reason = "" if min(numbers) == max(numbers) else "counted, but not the same in every seed"
    return replace(cell, mean=stats.mean(numbers), reason=reason)


def compared(
    metric: Metric,
    step: int | None,
    own: Values,
    base: Values,
    *,
    expected: int,
    lost: Mapping[str, int],
    problem: str = "",
    primary: bool = False,
    margin: Margin | None = None,
) -> Cell:
    """The difference to the baseline, tested by itself.

    `expected`: pairs that were planned; `lost`: what became of those without a number (`lost_seeds.of_pairs`).
    `problem`: why a difference means nothing. The `primary` metric alone gets a sign-flip test as a second opinion, and
    a test for equivalence within `margin`.
    """
    cell = summary(metric, step, own)
    seeds = sorted(own.keys() & base.keys())
    if metric.kind == "exact":
        return _counted(cell, len(seeds), base)
    n = len(seeds)
    cell = replace(cell, pairs=n, expected=expected, lost=lost, marked=n < expected)
    if problem:
        return replace(cell, verdict=NOT_COMPARABLE, reason=problem)
    if not n:
        if TO_COME in lost and expected >= INTERVAL_FROM:
            return replace(cell, verdict=UNFINISHED)
        return replace(cell, verdict=NOT_COMPARABLE, reason=cell.share_lost or _nothing(own, base))
    mine, its = [own[seed] for seed in seeds], [base[seed] for seed in seeds]
    cell, differences = _paired(cell, metric, mine, its)
    if not primary or cell.p is None:
        return cell
    if stats.SIGN_FLIP_FROM <= n <= stats.SIGN_FLIP_TO:
        cell = replace(cell, p_sign_flip=stats.sign_flip(differences))
    if margin and cell.spread:
        low, high = margin.bounds(metric, stats.mean(its))
        p = stats.equivalence(stats.mean(differences), cell.spread, n, low, high)
        cell = replace(cell, p_equivalence=p)
    return cell


def decided(cell: Cell, metric: Metric, *, primary: bool, size: int) -> Cell:
    """The cell with its verdict, now that its p has been corrected within its family of `size` planned tests."""
    if cell.p is None:
        return cell
    cell = _with_power(cell, size)
    if cell.verdict or cell.p_corrected is None:  # unfinished
        return cell
    clear = cell.p_corrected < stats.ALPHA
    exploratory = not primary or cell.pairs < CONFIRMED_FROM
    verdict = _verdict(cell, metric)
    flip, reason = cell.p_sign_flip, cell.reason
    if clear and flip is not None and flip >= stats.ALPHA:
        reason, exploratory = _join(f"the exact sign-flip test does not agree (p = {flip:.2g})", reason), True
    if cell.lost and not (verdict == WORSE and cell.lost.keys() <= FLATTERED):
        verdict = UNCLEAR
    bold = verdict == BETTER and not exploratory and not cell.marked
    return replace(cell, verdict=verdict, reason=reason, exploratory=exploratory, bold=bold)


def _verdict(cell: Cell, metric: Metric) -> str:
    assert cell.p_corrected is not None and cell.difference is not None
    if cell.p_equivalence is not None and cell.p_equivalence < stats.ALPHA:
        return EQUIVALENT
    if cell.p_corrected >= stats.ALPHA:
        return UNCLEAR
    if metric.direction == "neither":
        return DIFFERENT
    lower = cell.difference < (1 if cell.scale == "ratio" else 0)
    return BETTER if lower == (metric.direction == "lower") else WORSE


def _with_power(cell: Cell, size: int) -> Cell:
    """What these seeds could have found, and how many it takes, at the level that the correction left to this test."""
    if cell.spread is None or cell.effect is None or cell.p is None:
        return cell
    level = stats.ALPHA / size
    if cell.p_corrected is not None and cell.p < cell.p_corrected < 1:
        level = stats.ALPHA * cell.p / cell.p_corrected
    elif cell.p_corrected == cell.p:
        level = stats.ALPHA
    least = power.detectable(cell.pairs, level)
    return replace(
        cell,
        detectable=_back(least * cell.spread, cell.scale == "ratio") if least else None,
        n_needed=power.n_needed(cell.effect, level),
    )


def _counted(cell: Cell, pairs: int, base: Values) -> Cell:
    """Exact metrics: the difference is a fact, and nothing is tested."""
    reason = cell.reason or "counted, not tested"
    if cell.mean is None or not base:
        return replace(cell, pairs=pairs, reason=reason)
    before = stats.mean(list(base.values()))
    difference = cell.mean - before
    relative = 100 * difference / before if before else None
    return replace(cell, pairs=pairs, reason=reason, difference=difference, relative=relative)


def _paired(cell: Cell, metric: Metric, mine: Sequence[float], its: Sequence[float]) -> tuple[Cell, list[float]]:
    """The cell with its difference and its test, and the paired differences (in logarithms for a ratio)."""
    n, ratio = len(mine), metric.kind == "positive_scale"
    if ratio:
        cell = replace(cell, scale="ratio")
        if min(*mine, *its) <= 0:
            return replace(cell, verdict=NOT_COMPARABLE, reason="a value of zero or below has no ratio"), []
        mine, its = [math.log(value) for value in mine], [math.log(value) for value in its]
    differences = [a - b for a, b in zip(mine, its, strict=True)]
    middle, before, noise = stats.mean(differences), stats.mean(its), stats.sd(its)
    cell = replace(
        cell,
        difference=_back(middle, ratio),
        relative=100 * math.expm1(middle) if ratio else 100 * middle / abs(before) if before else None,
        correlation=stats.correlation(mine, its),
        noise_units=middle / noise if noise and not stats.flat(its) else None,
        reason=f"on {n} of {cell.expected} seeds" if cell.marked else "",
    )
    if metric.direction != "neither":
        wins = sum(d < 0 if metric.direction == "lower" else d > 0 for d in differences)
        cell = replace(cell, wins=wins)
    size = 1.0 if ratio else max(map(abs, (*mine, *its)))
    return _with_test(cell, differences, size), differences


def _with_test(cell: Cell, differences: Sequence[float], size: float) -> Cell:
    """Interval and p, or words in place of them. `size`: of the numbers, for what float32 can resolve in them."""
    n, ratio = len(differences), cell.scale == "ratio"
    if n < INTERVAL_FROM:
        cell = replace(cell, verdict=TOO_FEW, reason=_join(ONE_SEED if n == 1 else TWO_SEEDS, cell.reason))
    elif TO_COME in cell.lost:
        cell = replace(cell, verdict=UNFINISHED, reason="")
    if n == 2:
        low, high = _back(min(differences), ratio), _back(max(differences), ratio)
        return replace(cell, low=low, high=high, interval="range")
    if n < INTERVAL_FROM:
        return cell
    if not stats.flat(differences, size):
        found = stats.paired(differences)
        low, high = _back(found.low, ratio), _back(found.high, ratio)
        effect = found.mean / found.sd
        return replace(cell, low=low, high=high, interval="t", p=found.p, spread=found.sd, effect=effect)
    if cell.verdict:
        return cell
    if all(d == 0 for d in differences):
        return replace(cell, verdict=UNCLEAR, reason=_join("the same numbers in every seed", cell.reason))
    words = "the same difference in every seed: no noise to test it by"
    return replace(cell, verdict=NOT_COMPARABLE, reason=_join(words, cell.reason))


def _back(value: float, ratio: bool) -> float:
    """From the logarithm to the ratio; a ratio too large for a number is infinite."""
    if not ratio:
        return value
    return math.exp(value) if value < 709 else math.inf


def _nothing(own: Values, base: Values) -> str:
    if not own:
        return "no finished run has a finite value"
    return "no seed in common with the baseline" if base else "the baseline has no finite value"


def _join(words: str, reason: str) -> str:
    return f"{words}; {reason}" if reason else words
