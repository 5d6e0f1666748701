"""The search for a value of which the cost is nearest: against every value, counted one by one."""

from __future__ import annotations

import pytest

from gptlab.planning.solving import Point, bracket

ADMISSIBLE = {
    "every": lambda value: True,
    "multiples of eight": lambda value: value % 8 == 0,
    "odd": lambda value: value % 2 == 1,
    "up to a limit": lambda value: value <= 100,
    "from a limit": lambda value: value >= 20,
}


def cost(value: int) -> float:
    return 7.0 * value * value + 1000


@pytest.mark.parametrize("name", ADMISSIBLE)
@pytest.mark.parametrize("target", [0, 1007, 1008, 5000, 71_000, 71_001, 500_000])
@pytest.mark.parametrize("start", [1, 37, 400])
def test_it_finds_the_neighbours_of_the_target(name: str, target: float, start: int) -> None:
    admissible = ADMISSIBLE[name]
    start = {"up to a limit": min(start, 100), "from a limit": max(start, 20)}.get(name, start)  # what a variant has
    known = [Point(value, cost(value)) for value in range(1, 2000) if admissible(value)]
    found = bracket(lambda value: cost(value) if admissible(value) else None, target, start)
    below = max((p for p in known if p.cost <= target), key=lambda p: p.value, default=None)
    above = min((p for p in known if p.cost > target), key=lambda p: p.value, default=None)
    assert (found.below, found.above, found.idle, found.falls) == (below, above, False, False)


def test_each_value_is_counted_once_and_there_are_few() -> None:
    asked: list[int] = []

    def counted(value: int) -> float:
        asked.append(value)
        return cost(value)

    bracket(counted, cost(12_345), 4096)
    assert len(asked) == len(set(asked)) < 25


def test_steps_are_kept() -> None:
    found = bracket(lambda value: float(value) if value % 12 == 0 else pytest.fail(str(value)), 130, 96, step=12)
    assert found.points == [Point(120, 120.0), Point(132, 132.0)]


def test_a_key_without_effect_and_one_with_the_opposite_are_told() -> None:
    assert bracket(lambda value: 5.0, 100, 8).idle
    assert bracket(lambda value: 1000.0 / value, 10, 8).falls
    nothing = bracket(lambda value: None, 10, 8)
    assert (nothing.points, nothing.idle, nothing.falls) == ([], False, False)
