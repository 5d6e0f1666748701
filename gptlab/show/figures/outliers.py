"""Values that would hide all others: one diverged variant must not press the rest of a figure into a line.

They are drawn as an arrow at the edge of the axis, with their value beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gptlab.show.formats import significant

FAR = 50  # times the typical distance from the middle: the others would share a fiftieth of the axis


def window(
    values: Iterable[float], middle: float | None = None, reach: Iterable[float] = ()
) -> tuple[float, float] | None:
    """Lowest and highest of the values that fit on one axis; None when all of them do.

    `middle`: what distances are taken from (0 for differences); without it, the median. `reach`: how far from the
    middle each of the things drawn goes, an interval's ends too; without it, the values' own distances.
    """
    finite = sorted(value for value in values if math.isfinite(value))
    if len(finite) < 2:
        return None
    center = _median(finite) if middle is None else middle
    distances = sorted(abs(value - center) for value in finite if value != center)
    if middle is None and len(finite) == 2:  # of two levels, the smaller one is the yardstick
        distances = [abs(finite[0])]
    distances = sorted(distance for distance in reach if distance and math.isfinite(distance)) or distances
    if not distances or not (typical := _median(distances)):
        return None
    kept = [value for value in finite if abs(value - center) <= FAR * typical]
    return None if len(kept) == len(finite) else (kept[0], kept[-1])


def short(value: float) -> str:
    """The value beside its arrow: 1.03e+07."""
    return significant(value, 3)


def _median(ordered: Sequence[float]) -> float:
    """The lower one of two: half of the values may be far."""
    return ordered[(len(ordered) - 1) // 2]
