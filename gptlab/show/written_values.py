"""How a value is written in a table: plain decimals, as many as the interval supports, and powers of ten beyond."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gptlab.comparing.comparison import Cell
from gptlab.texts import printable

Value = str | int | float | bool | None
LARGEST = 1e7  # from here on, powers of ten are easier to read


@dataclass(frozen=True)
class Entry:
    """A value and how it is written. Numbers are plain (no separators): what is shown can be read back."""

    value: Value
    text: str
    bold: bool = False


def decimals(cells: Sequence[Cell]) -> int:
    """Decimals for a metric: two digits of the narrowest interval, or of the smallest difference without intervals."""
    widths = [c.high - c.low for c in cells if c.interval == "t" and c.scale == "difference" and c.high and c.low]
    sizes = widths or [c.difference for c in cells if c.difference and c.scale == "difference"]
    sizes = [abs(size) / 2 for size in sizes or [(c.mean or 0.0) / 50 for c in cells] if size and math.isfinite(size)]
    if not sizes or (smallest := min(sizes)) <= 0:
        return 4
    return max(0, min(8, 1 - math.floor(math.log10(smallest))))


def number(value: float, places: int, sign: bool = False) -> str:
    """A plain decimal; a power of ten for what would lose its digits. Infinity and NaN in words."""
    plus = "+" if sign else ""
    if not math.isfinite(value):
        return f"{value:{plus}f}"
    size = abs(value)
    if value and (size < 0.5 * 10**-places or size >= LARGEST):
        return f"{value:{plus}.2e}"
    return f"{value:{plus}.{places}f}"


def factor(value: float) -> str:
    """`x1.071`; a power of ten where that would lose its digits."""
    return f"x{value:.3f}" if 0.1 <= value < 1000 else f"x{value:.2e}" if math.isfinite(value) else "xinf"


def percent_entry(value: float | None) -> Entry:
    """With its sign and two decimals; a plain 0 for no difference, nothing where there is no number."""
    if value is None:
        return Entry(None, "")
    return Entry(value, number(value, 2, sign=True) if value else "0")


def text_entry(text: str, bold: bool = False) -> Entry:
    """`text` with whatever could disturb a terminal or a page escaped."""
    shown = printable(text)
    return Entry(shown, shown, bold)


def value_entry(value: Any) -> Entry:
    """A whole number as it is, another one with two decimals, text escaped; nothing for None."""
    if value is None or value == "":
        return Entry(None, "")
    if isinstance(value, bool):
        return Entry(value, "yes" if value else "")
    if isinstance(value, str):
        return text_entry(value)
    return Entry(value, str(value) if isinstance(value, int) else f"{value:.2f}")
