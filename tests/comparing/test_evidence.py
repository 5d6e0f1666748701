"""One cell from two lists of numbers: each limit from both of its sides, each fact held against plain arithmetic."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace as replace_metric
from typing import Any

import pytest
from scipy import stats

from gptlab.comparing.comparison import Cell, replace
from gptlab.comparing.evidence import compared, decided, summary
from gptlab.margin import Margin
from gptlab.metrics import METRICS, Metric

LOSS = METRICS["final_loss"]  # lower is better
ACCURACY = replace_metric(LOSS, name="accuracy", direction="higher")  # as a plugin declares one
NORM = METRICS["grad_norm"]  # neither, a positive scale
NOISE = [0.02, -0.05, 0.01, 0.04, -0.03, 0.05, -0.01, -0.04, 0.03, 0.0]


def values(count: int, shift: float = 0.0, jitter: float = 0.0) -> dict[int, float]:
    return {seed: 3 + NOISE[seed % 10] + shift + jitter * NOISE[(3 * seed + 1) % 10] for seed in range(count)}


def cell_of(metric: Metric, own: dict[int, float], base: dict[int, float], **more: Any) -> Cell:
    lost = more.pop("lost", {})
    return compared(metric, None, own, base, **{"expected": len(base), "lost": lost, "primary": True, **more})


def verdict_of(cell: Cell, metric: Metric = LOSS, size: int = 1, primary: bool = True, p: float | None = None) -> Cell:
    return decided(replace(cell, p_corrected=cell.p if p is None else p), metric, primary=primary, size=size)


@pytest.mark.parametrize("count", [7, 8, 30, 31])
def test_the_second_opinion_is_for_eight_to_thirty_seeds(count: int) -> None:
    cell = cell_of(LOSS, values(count, 0.1, 0.3), values(count))
    assert (cell.p_sign_flip is not None) == (8 <= count <= 30)
    assert cell_of(LOSS, values(count, 0.1, 0.3), values(count), primary=False).p_sign_flip is None


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_what_few_seeds_can_say(count: int) -> None:
    own, base = values(count, 1.0, 0.3), values(count)
    differences = [own[seed] - base[seed] for seed in own]
    cell = cell_of(LOSS, own, base)
    assert cell.interval == {1: "", 2: "range"}.get(count, "t")
    if count == 2:
        assert (cell.low, cell.high) == (min(differences), max(differences))
    if count < 3:
        assert cell.verdict == "too few seeds" and cell.p is None
    else:
        found = verdict_of(cell)
        assert (found.verdict, found.exploratory) == ("worse", count < 5)
        assert found.p == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)


def test_differences_are_the_variants_minus_the_baselines() -> None:
    own, base = values(6, -0.5, 0.4), values(6)
    differences = [own[seed] - base[seed] for seed in range(6)]
    middle, before = statistics.mean(differences), statistics.mean(base.values())
    cell = cell_of(LOSS, own, base)
    assert cell.difference == pytest.approx(middle) and middle < 0
    assert cell.relative == pytest.approx(100 * middle / before)
    assert cell.noise_units == pytest.approx(middle / statistics.stdev(base.values()))
    assert cell.effect == pytest.approx(middle / statistics.stdev(differences))
    assert cell.correlation == pytest.approx(statistics.correlation(list(own.values()), list(base.values())))
    assert cell.wins == 6 and cell_of(ACCURACY, own, base).wins == 0
    assert (cell.mean, cell.sd) == pytest.approx((statistics.mean(own.values()), statistics.stdev(own.values())))


def test_relative_to_a_negative_baseline_keeps_its_sign() -> None:
    base = {seed: -value for seed, value in values(5).items()}
    own = {seed: value + 0.3 + 0.01 * seed for seed, value in base.items()}
    cell = cell_of(LOSS, own, base)
    assert cell.difference is not None and cell.difference > 0
    assert cell.relative is not None and cell.relative > 0


def test_a_positive_scale_is_a_ratio() -> None:
    own, base = {seed: 2 * value for seed, value in values(5, 0.0, 0.5).items()}, values(5)
    logs = [math.log(own[seed] / base[seed]) for seed in own]
    cell = cell_of(NORM, own, base)
    ratio = math.exp(statistics.mean(logs))
    assert (cell.scale, cell.wins) == ("ratio", None)
    assert cell.difference == pytest.approx(ratio) and cell.relative == pytest.approx(100 * (ratio - 1))
    low, high = stats.ttest_1samp(logs, 0).confidence_interval(0.95)
    assert (cell.low, cell.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert verdict_of(cell, NORM).verdict == "clear difference"
    zero = cell_of(NORM, {**own, 0: 0.0}, base)
    assert (zero.verdict, zero.p) == ("not comparable", None)
    assert cell_of(NORM, {**own, 0: 1e-300}, base).verdict != "not comparable"


@pytest.mark.parametrize(("metric", "shift", "verdict"), [
    (LOSS, -0.5, "better"), (LOSS, 0.5, "worse"), (ACCURACY, -0.5, "worse"), (ACCURACY, 0.5, "better"),
])  # fmt: skip
def test_which_way_is_better(metric: Metric, shift: float, verdict: str) -> None:
    cell = verdict_of(cell_of(metric, values(6, shift, 0.3), values(6)), metric)
    assert (cell.verdict, cell.exploratory, cell.bold) == (verdict, False, verdict == "better")


def test_the_corrected_p_decides_and_not_the_bare_one() -> None:
    cell = cell_of(LOSS, values(6, 0.5, 0.3), values(6))
    assert cell.p is not None and cell.p < 0.01
    assert verdict_of(cell, p=0.0499).verdict == "worse"
    assert verdict_of(cell, p=0.05).verdict == "no clear difference"  # the level itself is not below it
    assert verdict_of(cell, primary=False).exploratory


@pytest.mark.parametrize(("margin", "equivalent"), [("0.2", True), ("0.01", False)])
def test_equivalence_within_a_margin(margin: str, equivalent: bool) -> None:
    own, base = values(6, 0.0, 1.0), values(6)
    differences = [own[seed] - base[seed] for seed in own]
    n, middle, error = 6, statistics.mean(differences), statistics.stdev(differences) / math.sqrt(6)
    cell = cell_of(LOSS, own, base, margin=Margin.parse(margin, "margin"))
    size = float(margin)
    expected = max(stats.t.sf((middle + size) / error, n - 1), stats.t.cdf((middle - size) / error, n - 1))
    assert cell.p_equivalence == pytest.approx(expected)
    assert (verdict_of(cell).verdict == "equivalent within margin") == equivalent
    assert cell_of(LOSS, own, base, margin=Margin.parse(margin, "margin"), primary=False).p_equivalence is None


def test_what_lost_seeds_is_not_better_and_may_still_be_worse() -> None:
    def lost(shift: float, **reasons: int) -> Cell:
        own = {seed: value for seed, value in values(8, shift, 0.3).items() if seed < 7}
        return verdict_of(cell_of(LOSS, own, values(8), lost=reasons))

    assert lost(-0.5, diverged=1).verdict == "no clear difference" and not lost(-0.5, diverged=1).bold
    assert lost(0.5, diverged=1).verdict == "worse"
    assert lost(0.5, failed=1).verdict == "no clear difference"
    assert lost(0.5, diverged=1, failed=1).verdict == "no clear difference"
    assert (lost(0.5, diverged=1).pairs, lost(0.5, diverged=1).expected, lost(0.5, diverged=1).marked) == (7, 8, True)


def test_a_difference_without_noise_is_not_tested() -> None:
    same = cell_of(LOSS, values(5), values(5))
    assert (same.verdict, same.p, same.difference) == ("no clear difference", None, 0.0)
    shifted = cell_of(LOSS, values(5, 0.25), values(5))  # less than float32 can tell apart
    assert (shifted.verdict, shifted.p) == ("not comparable", None)


def test_counts_are_facts() -> None:
    cell = cell_of(METRICS["parameters"], {1: 1200.0, 2: 1200.0}, {1: 1000.0, 2: 1000.0})
    assert (cell.difference, cell.relative, cell.pairs, cell.p, cell.verdict) == (200.0, 20.0, 2, None, "")
    assert summary(METRICS["parameters"], None, {1: 5.0, 2: 6.0}).reason
    assert not summary(METRICS["parameters"], None, {1: 5.0, 2: 5.0}).reason
    assert (summary(LOSS, 7, {}).n, summary(LOSS, 7, {}).step, summary(LOSS, 7, {}).mean) == (0, 7, None)


def test_a_reason_that_makes_it_meaningless_comes_before_all_numbers() -> None:
    cell = cell_of(LOSS, values(6, -0.5, 0.3), values(6), problem="other data")
    assert (cell.verdict, cell.reason, cell.difference, cell.p) == ("not comparable", "other data", None, None)


def test_the_power_is_at_the_level_that_the_correction_left() -> None:
    """With m tests and the smallest p, Holm leaves 0.05 / m to it, and a t test of that level is what counts."""
    cell = cell_of(LOSS, values(8, 0.02, 1.0), values(8))
    alone, four = verdict_of(cell), verdict_of(cell, size=4, p=min(1.0, 4 * (cell.p or 0)))
    assert alone.detectable and four.detectable and alone.detectable < four.detectable
    assert alone.n_needed and four.n_needed and alone.n_needed < four.n_needed
    effect = abs(cell.effect or 0)
    for found, level in ((alone, 0.05), (four, 0.05 / 4)):
        assert power_of(effect, found.n_needed, level) >= 0.8 > power_of(effect, found.n_needed - 1, level)


def power_of(effect: float, n: int, level: float) -> float:
    """Of a two-sided one-sample t test, from the noncentral t distribution."""
    reach, shift = stats.t.ppf(1 - level / 2, n - 1), effect * math.sqrt(n)
    return float(stats.nct.sf(reach, n - 1, shift) + stats.nct.cdf(-reach, n - 1, shift))
