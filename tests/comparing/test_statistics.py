"""The arithmetic against scipy and statsmodels, and its promises (coverage, error rate) by simulation."""

from __future__ import annotations

import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
from scipy import special, stats

from gptlab.comparing import power, statistics

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from statsmodels.stats.multitest import multipletests
    from statsmodels.stats.power import TTestPower
    from statsmodels.stats.weightstats import ttost_paired

EXACT = {"rel": 1e-12, "abs": 1e-12}
SIZES = [3, 4, 5, 8, 10, 20, 30]


def draws(n: int, shift: float = 0.5) -> list[float]:
    return (np.random.default_rng(n).normal(size=n) + shift).tolist()


@pytest.mark.parametrize("n", [2, *SIZES])
@pytest.mark.parametrize("shift", [0.0, 0.5, 5.0, 1000.0])
def test_paired_t_is_scipys(n: int, shift: float) -> None:
    found = statistics.paired(draws(n, shift))
    expected = stats.ttest_1samp(draws(n, shift), 0)
    assert found.p == pytest.approx(expected.pvalue, **EXACT)
    low, high = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high), **EXACT)
    assert (found.mean, found.sd) == pytest.approx((np.mean(draws(n, shift)), np.std(draws(n, shift), ddof=1)), **EXACT)


@pytest.mark.parametrize("n", [1, 3, 8, 13, 16])
def test_sign_flip_is_scipys(n: int) -> None:
    values = draws(n)
    if n > 1:
        expected = stats.permutation_test(
            (values,),
            lambda x, axis: x.sum(axis=axis),
            permutation_type="samples",
            n_resamples=math.inf,
            vectorized=True,
        ).pvalue
        assert statistics.sign_flip(values) == pytest.approx(expected, **EXACT)
    else:
        assert statistics.sign_flip(values) == 1.0


def test_sign_flip_counts_ties_whatever_the_order_of_adding() -> None:
    assert statistics.sign_flip([0.1, 0.2, 0.3]) == 0.25
    assert statistics.sign_flip([0.1] * 8) == 2 / 256
    assert statistics.sign_flip([0.0] * 8) == 1.0
    assert statistics.sign_flip([1.0, -1.0]) == 1.0
    assert statistics.sign_flip([0.7] * 30) == pytest.approx(2 / 2**30, **EXACT)


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_corrections_are_statsmodels_and_scipys(count: int) -> None:
    ps = (np.random.default_rng(count).uniform(size=count) ** 3).tolist()
    assert statistics.holm(ps) == pytest.approx(multipletests(ps, method="holm")[1].tolist(), **EXACT)
    expected = stats.false_discovery_control(ps, method="bh").tolist()
    assert statistics.benjamini_hochberg(ps) == pytest.approx(expected, **EXACT)
    assert statistics.holm([]) == statistics.benjamini_hochberg([]) == []


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("missing", [1, 3])
def test_planned_tests_without_a_number_count_as_if_they_had_found_nothing(count: int, missing: int) -> None:
    ps = (np.random.default_rng(count).uniform(size=count) ** 3).tolist()
    filled = [*ps, *[1.0] * missing]
    for adjust in (statistics.holm, statistics.benjamini_hochberg):
        assert adjust(ps, count + missing) == adjust(filled)[:count]
        arrived = [*ps, *np.random.default_rng(9).uniform(size=missing).tolist()]
        assert all(a <= b + 1e-15 for a, b in zip(adjust(arrived), adjust(filled), strict=True))  # and never rises


@pytest.mark.parametrize("n", SIZES)
def test_equivalence_is_statsmodels(n: int) -> None:
    values = np.array(draws(n, 0.1))
    expected, *_ = ttost_paired(values, np.zeros(n), -0.6, 0.8)
    found = statistics.equivalence(float(values.mean()), float(values.std(ddof=1)), n, -0.6, 0.8)
    assert found == pytest.approx(expected, **EXACT)


@pytest.mark.parametrize("n", SIZES)
def test_the_detectable_effect_is_statsmodels(n: int) -> None:
    expected = TTestPower().solve_power(nobs=n, alpha=0.05, power=0.8)
    assert power.detectable(n) == pytest.approx(expected, rel=1e-5)  # it counts the far tail too


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.001])
@pytest.mark.parametrize("n", [3, 4, 5, 12])
def test_the_power_is_what_simulation_finds(n: int, alpha: float) -> None:
    """scipy's noncentral t, and statsmodels with it, is wrong for few seeds at corrected levels."""
    effect = power.detectable(n, alpha)
    assert effect is not None
    values = np.random.default_rng(n).normal(size=(40_000, n)) + effect
    t = values.mean(axis=1) / (values.std(axis=1, ddof=1) / math.sqrt(n))
    found = float((t > special.stdtrit(n - 1, 1 - alpha / 2)).mean())
    assert found == pytest.approx(power.POWER, abs=0.008)
    assert power.n_needed(1.001 * effect, alpha) == n
    assert power.n_needed(0.999 * effect, alpha) == n + 1


@pytest.mark.parametrize(("effect", "needed"), [(50.0, 3), (1.0, 10), (-1.0, 10), (0.5, 34), (0.01, None), (0.0, None)])
def test_seeds_needed(effect: float, needed: int | None) -> None:
    assert power.n_needed(effect) == needed


@pytest.mark.parametrize("n", SIZES)
def test_correlation_is_numpys(n: int) -> None:
    one = draws(n)
    two = [x + y for x, y in zip(one, draws(n + 100, 0)[:n], strict=True)]
    assert statistics.correlation(one, two) == pytest.approx(float(np.corrcoef(one, two)[0, 1]), **EXACT)


def test_degenerate_input_has_no_number() -> None:
    assert statistics.sd([1.0]) is None
    assert statistics.half_width(0.1, 2) is None
    assert statistics.correlation([1.0, 2.0], [1.0, 2.0]) is None
    assert statistics.correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
    assert power.detectable(2) is None
    assert statistics.flat([10.98, 10.98 + 1e-7])
    assert not statistics.flat([10.98, 10.98 + 1e-5])


@pytest.mark.parametrize("n", [3, 5, 10])
def test_a_95_percent_interval_covers_95_percent(n: int) -> None:
    repetitions = 20_000
    values = np.random.default_rng(n).normal(size=(repetitions, n))
    spread = values.std(axis=1, ddof=1)
    reach = statistics.t_quantile(n - 1) * spread / math.sqrt(n)
    # The same intervals as `paired` makes, a row at a time:
    for row in range(20):
        found = statistics.paired(values[row].tolist())
        assert found.high - found.mean == pytest.approx(reach[row], **EXACT)
    assert float((np.abs(values.mean(axis=1)) <= reach).mean()) == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_five_null_variants_rarely_give_a_false_finding(n: int) -> None:
    """Shared seed noise, five variants that differ in nothing, one family: at most 5 % with any finding."""
    repetitions, variants = 8_000, 5
    random = np.random.default_rng(100 + n)
    shared = random.normal(size=(repetitions, 1, n))
    noise = 0.7 * random.normal(size=(repetitions, variants + 1, n))
    measured = shared + noise
    differences = measured[:, 1:] - measured[:, :1]
    t = differences.mean(axis=2) / (differences.std(axis=2, ddof=1) / math.sqrt(n))
    ps = 2 * special.stdtr(n - 1, -np.abs(t))
    found = statistics.paired(differences[0, 0].tolist()).p
    assert found == pytest.approx(ps[0, 0], **EXACT)
    uncorrected = float((ps < 0.05).any(axis=1).mean())
    corrected = float(np.mean([min(statistics.holm(row)) < 0.05 for row in ps.tolist()]))
    assert corrected <= 0.05
    assert uncorrected > 0.1  # the test can fail: without the correction it would


def test_more_seeds_always_see_smaller_effects() -> None:
    """About 2.8 / sqrt(n); scipy's noncentral t has holes where a search might step into."""
    found = [power.detectable(n) for n in range(3, power.MOST_SEEDS + 1)]
    assert all(later < earlier for earlier, later in pairwise(found))
    assert found[-1] == pytest.approx(2.8 / power.MOST_SEEDS**0.5, rel=0.01)
