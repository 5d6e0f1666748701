"""The values of a key whose cost is nearest to a target, found by counting and halving: no formula is trusted."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

MOST = 2**26  # beyond it, nothing is looked for
SCAN = 16  # neighbours that are tried in place of a value that cannot be


@dataclass(frozen=True)
class Point:
    """A value that can be, and what it costs."""

    value: int
    cost: float


@dataclass(frozen=True)
class Bracket:
    """The dearest admissible value that costs no more than the target, and the cheapest that costs more.

    `idle`: whatever value was tried, the cost was the same. `falls`: a larger value was cheaper.
    """

    below: Point | None
    above: Point | None
    idle: bool
    falls: bool

    @property
    def points(self) -> list[Point]:
        return [point for point in (self.below, self.above) if point]


def bracket(cost: Callable[[int], float | None], target: float, start: int, step: int = 1) -> Bracket:
    """Look among the positive multiples of `step`, from `start`. `cost` is None for a value that cannot be.

    It has to rise with the value; each value is counted once, about 2 log2(value) of them.
    """
    known: dict[int, float | None] = {}
    below: Point | None = None
    above: Point | None = None

    def first(unit: int, end: int) -> Point | None:
        """The first value from `unit` on that can be; known to be none only as far as SCAN."""
        for one in range(unit, min(end, unit + SCAN)):
            if one not in known:
                known[one] = cost(one * step)
            if (found := known[one]) is not None:
                return Point(one * step, found)
        return None

    low, high = 0, max(1, start // step)  # what lies between them is not known yet
    while high * step <= MOST:
        point = first(high, MOST)
        if point is None or point.cost > target:
            above = point
            break
        if below and point.cost == below.cost:  # twice the value, and nothing changed
            break
        below, low = point, point.value // step
        high = 2 * low
    while high - low > 1:
        middle = (low + high) // 2
        point = first(middle, high)
        if point and point.cost <= target:
            below, low = point, point.value // step
        elif point or above is None or middle + SCAN >= high:
            above, high = point or above, middle
        else:  # what is admissible begins above
            low = middle + SCAN - 1
    counted = [found for _, found in sorted(known.items()) if found is not None]
    return Bracket(
        below,
        above,
        idle=len(counted) > 1 and len(set(counted)) == 1,
        falls=any(one > other for one, other in itertools.pairwise(counted)),
    )
