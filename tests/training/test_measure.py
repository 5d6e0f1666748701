"""A measurement chooses by medians of turns taken one after the other, and takes nothing without a clear lead."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch

from gptlab import compose, kernels
from gptlab.training.kernels import measure
from gptlab.training.kernels.linear import available
from gptlab.training.kernels.measure import Timing, choose, contestants, products, race


class Clock:
    """Time passes when a turn says so."""

    def __init__(self) -> None:
        self.now, self.order = 0.0, list[str]()

    def __call__(self) -> float:
        return self.now

    def turn(self, name: str, seconds: Iterable[float]) -> Callable[[], None]:
        left = iter(seconds)

        def take() -> None:
            self.order.append(name)
            self.now += next(left)

        return take


def forever(*seconds: float) -> Iterable[float]:
    while True:
        yield from seconds


def test_candidates_take_turns_and_one_bad_turn_decides_nothing() -> None:
    clock = Clock()
    found = race({"a": clock.turn("a", forever(0.01, 0.01, 5.0)), "b": clock.turn("b", forever(0.02))}, clock)
    assert found == {"a": pytest.approx(0.01), "b": pytest.approx(0.02)}
    timed = clock.order[4:]  # twice each to warm up
    assert timed == ["a", "b"] * (len(timed) // 2) and len(timed) // 2 >= measure.FEWEST


def test_short_turns_are_repeated_and_long_ones_end_soon() -> None:
    clock = Clock()
    race({"a": clock.turn("a", forever(measure.TURN / 10))}, clock)
    assert len(clock.order) >= measure.MOST * 10
    slow = Clock()
    race({"a": slow.turn("a", forever(2 * measure.SECONDS))}, slow)
    assert len(slow.order) == 2 + measure.FEWEST


@pytest.mark.parametrize(("share", "chosen"), [(0.94, "onednn"), (0.96, "torch"), (1.5, "torch")])
def test_a_candidate_needs_a_lead(share: float, chosen: str) -> None:
    assert choose([Timing("linear", "torch", 2.0), Timing("linear", "onednn", 2.0 * share)]) == {"linear": chosen}
    assert choose([]) == {}


def test_what_is_raced_is_what_the_run_can_take() -> None:
    places = [*["linear"] * available(), "qkv", "optimizer"]
    assert [place for place, _ in contestants(compose(["model=tiny", "train.budget=5"]))] == places
    pinned = compose(["model=tiny", "train.budget=5", "train.kernels.optimizer=flat"])
    assert [place for place, _ in contestants(pinned)] == places[:-1]
    large = compose(["model=gpt2_124m", "train.budget=5", "train.kernels={linear: torch, qkv: separate}"])
    assert list(contestants(large)) == []
    assert list(contestants(compose(["model=tiny", "train.budget=5", "train.kernels=reference"]))) == []


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this processor has no bf16")
def test_each_candidate_computes_what_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real measurement, as short as can be, of all places; the global random state stays (conftest sees to it)."""
    monkeypatch.setattr(measure, "SECONDS", 0.0)
    seen = set[tuple[str, str]]()
    for precision in ("fp32", "bf16"):
        config = compose(["model=toy_lesson", "train=toy", f"train.precision={precision}"])
        timings = measure.measure(config)
        assert all(timing.seconds > 0 for timing in timings)
        seen |= {(timing.place, timing.kernel) for timing in timings}
        assert set(choose(timings)) == {timing.place for timing in timings}
    skipped = {"loss"} | (set() if available() else {"linear"})
    assert seen == {(p, name) for p, names in kernels.PLACES.items() if p not in skipped for name in names}


def test_large_products_are_cut_and_count_for_what_they_stand_for() -> None:
    config = compose(["model=gpt2_124m", "train.budget=5", "train.batch_size=8", "train.context=1024"])
    whole = 8 * 1024 * (12 * 12 * 768**2 + 768 * 50257)
    found = products(config)
    assert sum(count * m * k * n for (m, k, n), count in found.items()) == pytest.approx(whole)
    assert max(max(shape) for shape in found) <= measure.LARGEST
    assert 3 * sum(m * k * n for m, k, n in found) <= measure.HEAVIEST or max(m for m, *_ in found) == 256
