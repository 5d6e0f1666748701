"""Numbers as readers see them: the one place that turns a number into text, for every table, page and figure.

A number may lose digits, never its sense: what is not zero is not shown as zero, nothing is `-0.00`, and what is
counted is shown whole. What is shown can be read back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from gptlab.comparing.comparison import Cell
from gptlab.comparing.which_metrics import declared

SAME = "="  # in a difference column: bit for bit the baseline's value
NOTHING = ""
SMALL, LARGE = 1e-2, 1e7  # outside, powers of ten are easier to read
MORE = 2  # places that a number may have beyond those of its column, before it becomes a power of ten


def count(value: int | float | None) -> str:
    """163,009,536."""
    return NOTHING if value is None else f"{value:,.0f}"


def is_count(value: float) -> bool:
    """Whether it is a whole number that can be shown with every digit."""
    return math.isfinite(value) and float(value).is_integer() and abs(value) < 1e15


def signed_count(value: int | float | None, base: int | float | None) -> str:
    """The difference to the baseline's count: -38,597,376."""
    if value is None or base is None:
        return NOTHING
    return SAME if value == base else f"{value - base:+,.0f}"


def fixed(value: float, places: int, sign: bool = False) -> str:
    """A decimal with `places`, a few more where it would be shown as zero; a power of ten where that is not enough."""
    if value == 0:
        return "0" if sign else f"{0:.{places}f}"
    plus = "+" if sign else ""
    if not math.isfinite(value):
        return f"{value:{plus}f}"
    if abs(value) >= LARGE:
        return f"{value:{plus}.2e}"
    for more in (0, MORE):
        if float(text := f"{value:{plus}.{places + more}f}"):
            return text
    return f"{value:{plus}.1e}"


def significant(value: float | None, digits: int = 5, sign: bool = False) -> str:
    """A number by itself, with `digits` significant digits: 3.6021, 0.012346, 1.2346e+09."""
    if value is None:
        return NOTHING
    if value == 0:
        return "0"
    plus = "+" if sign else ""
    if not math.isfinite(value):
        return f"{value:{plus}f}"
    if not 1e-4 <= abs(value) < 10 ** (digits + 2):
        return f"{value:{plus}.{digits - 1}e}"
    return f"{value:{plus}.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def exact(value: float) -> str:
    """What was counted: every digit of a whole number."""
    return count(value) if is_count(value) else significant(value)


def measured(name: str) -> Callable[[float], str]:
    """How the values of the metric `name` are written, each by itself."""
    return exact if declared(name).counts else significant


def factor(value: float) -> str:
    """`x1.071`; more digits where it would be shown as x1.000, a power of ten where it would lose its digits."""
    if not 0.1 <= value < 1000:
        return f"x{value:.2e}" if math.isfinite(value) else "xinf"
    texts = [f"x{value:.{places}f}" for places in (3, 3 + MORE)]
    return texts[1] if value != 1 and float(texts[0][1:]) == 1 else texts[0]


def percent(change: float | None) -> str:
    """A change in percent, with its sign: +0.35, +0.0009; 0 for none."""
    return NOTHING if change is None else fixed(change, 2, sign=True)


def percent_change(value: int | float | None, base: int | float | None) -> str:
    """The difference to the baseline in percent: -17.38%, `=` for none."""
    if value is None or not base:
        return NOTHING
    return SAME if value == base else f"{percent(100 * (value - base) / base)}%"


def probability(p: float) -> str:
    """0.3400, 0.0012, 1.2e-05."""
    return f"{p:.4f}" if p >= 5e-5 else f"{p:.1e}"


def decimals(cells: Sequence[Cell]) -> int:
    """Decimals for a metric: two digits of a narrow interval (as the lower quarter is); three of a usual difference.

    What is smaller still has more places of its own (see `fixed`).
    """
    plain = [cell for cell in cells if cell.scale == "difference"]
    widths = [c.high - c.low for c in plain if c.interval == "t" and c.high is not None and c.low is not None]
    sizes = [width / 2 for width in widths] or [abs(cell.difference) / 10 for cell in plain if cell.difference]
    sizes = sorted(size for size in sizes or [abs(c.mean or 0.0) / 100 for c in cells] if size and math.isfinite(size))
    if not sizes:
        return 4
    return max(0, min(8, 1 - math.floor(math.log10(sizes[len(sizes) // 4 if widths else (len(sizes) - 1) // 2]))))


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


def difference(value: float | None, base: float | None, places: int) -> str:
    """The difference to the baseline's value: +0.0123, `=` for none."""
    if value is None or base is None:
        return NOTHING
    return SAME if value == base else fixed(value - base, places, sign=True)


def ratio(value: float | None, base: float | None) -> str:
    """How many times the baseline's value: x0.23. What is close but not equal is x1.00, and what is equal is `=`."""
    if value is None or base is None or not base:
        return NOTHING
    if value == base:
        return SAME
    times = value / base
    for low, form in ((1e6, ".0e"), (100, ",.0f"), (0.01, ".2f"), (1e-4, ".4f")):
        if times >= low:
            return f"x{times:{form}}"
    return f"x{times:.0e}" if times else "x0"


def si_unit(values: Iterable[float | None]) -> tuple[float, str]:
    """The divisor and prefix that bring the largest value between 1 and 1000: (1e6, "M")."""
    largest = max((v for v in values if v is not None), default=0)
    for divisor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if largest >= divisor:
            return divisor, prefix
    return 1, ""
