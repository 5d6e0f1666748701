"""Schedules against their closed forms."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from gptlab.config import TrainConfig
from gptlab.training.schedule import rate_shares


def factor(name: str, step: int, total: int | None) -> float:
    return rate_shares(TrainConfig(schedule=name), total)(step)


def curve(name: str, total: int = 100, **given: float) -> list[float]:
    share = rate_shares(TrainConfig(schedule=name, **given), total)  # type: ignore[arg-type]
    return [share(step) for step in range(total)]


@pytest.mark.parametrize("name", ["constant", "linear", "cosine", "wsd"])
def test_warm_up_is_a_straight_line_to_the_peak(name: str) -> None:
    rates = curve(name, warmup=10)
    assert rates[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert max(rates) == 1 and rates[10] == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("name", ["linear", "cosine", "wsd"])
def test_a_falling_schedule_ends_at_its_last_rate_and_never_rises(name: str) -> None:
    rates = curve(name, final_rate=0.1)
    assert rates[-1] == pytest.approx(0.1)
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(rates))


def test_half_way() -> None:
    assert factor("linear", 50, 101) == pytest.approx(0.5)
    assert factor("cosine", 50, 101) == pytest.approx(0.5)
    assert factor("cosine", 25, 101) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)


def test_wsd_is_stable_and_then_falls_over_its_share() -> None:
    rates = curve("wsd", decay_share=0.2)
    assert set(rates[:80]) == {1.0}
    assert rates[80] == 1.0 and rates[81] < 1 and rates[-1] == 0


def test_constant_needs_no_total() -> None:
    assert factor("constant", 10**9, None) == 1


@pytest.mark.parametrize("name", ["constant", "linear", "cosine", "wsd"])
@pytest.mark.parametrize(("total", "warmup"), [(1, 0), (1, 1), (2, 1), (5, 5)])
def test_the_shortest_runs_have_rates_between_zero_and_one(name: str, total: int, warmup: int) -> None:
    assert all(0 <= rate <= 1 for rate in curve(name, total, warmup=warmup))
    assert curve(name, total, warmup=warmup)[0] > 0
