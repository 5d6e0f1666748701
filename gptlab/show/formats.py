"""Numbers and texts as a table shows them: exact, aligned, and safe to send to a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

SAME = "="  # in a difference column: bit for bit the baseline's value
NOTHING = ""
SMALL, LARGE = 1e-2, 1e7  # outside, powers of ten are easier to read


def count(value: int | float | None) -> str:
    """163,009,536."""
    return NOTHING if value is None else f"{value:,.0f}"


def signed_count(value: int | float | None, base: int | float | None) -> str:
    """The difference to the baseline's count: -38,597,376."""
    if value is None or base is None:
        return NOTHING
    return SAME if value == base else f"{value - base:+,.0f}"


def percent(value: int | float | None, base: int | float | None) -> str:
    """The difference to the baseline in percent, with enough digits that a small one is not shown as none."""
    if value is None or not base:
        return NOTHING
    if value == base:
        return SAME
    change = 100 * (value - base) / base
    places = 2 if abs(change) >= 0.01 else 4
    return f"{change:+.{places}f}%" if abs(change) >= 5e-5 else f"{change:+.0e}%"


def column(values: Sequence[float | None], at_least: int = 0) -> list[str]:
    """A column of floats with three digits or more and the decimal points below each other.

    Values too small for that are powers of ten, and so is the whole column when all its values are small.
    """
    sizes = [abs(v) for v in values if v is not None and math.isfinite(v) and v != 0]
    plain = [size for size in sizes if SMALL <= size < LARGE]
    if sizes and (not plain or max(plain) < 10 * SMALL):
        return [NOTHING if v is None else f"{v:.2e}" for v in values]
    places = max(at_least, min(4, 2 - math.floor(math.log10(min(plain))))) if plain else at_least
    return [NOTHING if v is None else f"{v:,.{places}f}" if _is_plain(v) else f"{v:.2e}" for v in values]


def _is_plain(value: float) -> bool:
    return value == 0 or SMALL <= abs(value) < LARGE


def signed(value: float | None, base: float | None, places: int) -> str:
    """The difference to the baseline: +0.0123. One too small for these places is shown as a power of ten."""
    if value is None or base is None:
        return NOTHING
    if value == base:
        return SAME
    change = value - base
    return f"{change:+.{places}f}" if abs(change) >= 0.5 * 10**-places else f"{change:+.0e}"


def ratio(value: float | None, base: float | None) -> str:
    """How many times the baseline's value: x0.23. What is close but not equal is x1.00, and what is equal is `=`."""
    if value is None or base is None or not base:
        return NOTHING
    if value == base:
        return SAME
    factor = value / base
    for low, form in ((1e6, ".0e"), (100, ",.0f"), (0.01, ".2f"), (1e-4, ".4f")):
        if factor >= low:
            return f"x{factor:{form}}"
    return f"x{factor:.0e}" if factor else "x0"


def si_unit(values: Iterable[float | None]) -> tuple[float, str]:
    """The divisor and prefix that bring the largest value between 1 and 1000: (1e6, "M")."""
    largest = max((v for v in values if v is not None), default=0)
    for divisor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if largest >= divisor:
            return divisor, prefix
    return 1, ""
