"""Which value is best, and which is tried next: against cases made by hand, and against minima that are known."""

from __future__ import annotations

import math
import random

import pytest

from gptlab.tuned import Outcome, Protocol, Trial, at_edge, best_place, grid, most_runs, next_values

RULE = Protocol("train.learning_rate", 2.0, 5, 9, (901, 902), "final_loss", True)


def trials(*costs: float | None, first: float = 1.0) -> list[Trial]:
    """One trial for each cost, of values that double; None: the second seed diverged."""
    return [
        Trial(first * 2**place, {901: Outcome(cost or 1.0), 902: Outcome(cost, diverged=cost is None)})
        for place, cost in enumerate(costs)
    ]


def test_a_grid_rises_by_its_factor_around_the_arms_own_value() -> None:
    assert grid(3e-3, 2.0, 5) == (0.00075, 0.0015, 0.003, 0.006, 0.012)
    assert grid(1e-3, 2.0, 6) == (0.000125, 0.00025, 0.0005, 0.001, 0.002, 0.004)
    assert grid(1.0, math.sqrt(10), 5) == (0.1, 0.316228, 1.0, 3.16228, 10.0)


def test_the_best_is_the_lowest_mean_of_what_survived() -> None:
    assert best_place(trials(3, 2, 1, 2, 3), lower=True) == 2
    assert best_place(trials(3, 2, 1, 4, 3), lower=False) == 3
    assert best_place(trials(3, 2, None, 2.5, 3), lower=True) == 1  # one seed at the third value diverged
    assert best_place(trials(2, 1, 1, 2, 3), lower=True) == 1
    assert best_place(trials(None, None, None), lower=True) == 0
    assert Trial(1.0, {1: Outcome(2.0), 2: Outcome(4.0)}).cost(lower=True) == 3.0
    assert Trial(1.0, {1: Outcome(2.0), 2: Outcome(None)}).cost(lower=True) == math.inf
    assert Trial(1.0).cost(lower=True) == math.inf


@pytest.mark.parametrize(
    ("costs", "edge"),
    [((1, 2, 3, 4, 5), True), ((5, 4, 3, 2, 1), True), ((5, 1, 3, 4, 5), False), ((5, 4, 3, 1, None), False)],
)
def test_the_edge_has_no_neighbour(costs: tuple[float | None, ...], edge: bool) -> None:
    assert at_edge(trials(*costs), lower=True) is edge


def test_every_arm_tries_one_more_where_one_is_at_its_edge() -> None:
    inside, low, high = trials(5, 4, 3, 1, 5), trials(1, 2, 3, 4, 5), trials(5, 4, 3, 2, 1)
    assert next_values({"a": inside}, RULE) == {}
    assert next_values({"a": inside, "b": low}, RULE) == {"a": 32.0, "b": 0.5}  # `a` where it has fewer neighbours
    assert next_values({"a": high, "b": trials(5, 1, 3, 4, 5)}, RULE) == {"a": 32.0, "b": 0.5}
    assert next_values({"a": trials(*range(9))}, RULE) == {}  # no trials are left


@pytest.mark.parametrize("seed", range(20))
def test_grids_grow_alike_until_each_minimum_is_inside(seed: int) -> None:
    """Arms with a known best value: all end with as many trials, and each with its minimum on the grid."""
    draw = random.Random(seed)
    centers = {arm: draw.uniform(-3, 3) for arm in "abc"}

    def tried(arm: str, value: float) -> Trial:
        return Trial(value, {901: Outcome((math.log2(value) - centers[arm]) ** 2)})

    arms = {arm: [tried(arm, value) for value in grid(1.0, 2.0, 5)] for arm in centers}
    while more := next_values(arms, RULE):
        for arm, value in more.items():
            arms[arm] = sorted([*arms[arm], tried(arm, value)], key=lambda trial: trial.value)
        assert len({len(found) for found in arms.values()}) == 1
    for arm, found in arms.items():
        assert not at_edge(found, lower=True)
        assert abs(math.log2(found[best_place(found, True)].value) - centers[arm]) <= 0.5


def test_what_it_takes_at_least_and_at_most() -> None:
    assert most_runs(3, RULE) == (30, 54)
    assert most_runs(1, Protocol("k", 2.0, 11, 11, (1,), "final_loss", True)) == (11, 11)
