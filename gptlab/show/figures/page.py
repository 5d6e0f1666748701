"""Room on the page: a figure is as wide as asked, its text is as large as ever, and what does not fit goes below.

All lengths are in inches. Letters are counted with their mean width in DejaVu Sans, so that a layout can be made before
anything is drawn.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from gptlab.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNITS = {"mm": 1 / 25.4, "cm": 1 / 2.54, "in": 1.0, "pt": 1 / 72}
NARROWEST, WIDEST = 2.3, 20.0
TWO_PANELS = 6.5  # below this, what stands side by side stands one below the other
LETTER, BOLD, DIGIT = 0.54 / 72, 0.70 / 72, 0.61 / 72  # times the size in points: the mean width in a text
ROW = 0.19  # of a legend


def inches(flag: str, text: str) -> float:
    """`84mm` in inches. ConfigError for what is no length, or none that a figure can have."""
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*([a-z]+)", text.strip())
    if not match or match[2] not in UNITS:
        units = ", ".join(UNITS)
        raise ConfigError(
            f"{flag} {text}: write a number with its unit ({units}): 84mm.", code="width-unreadable", value=text
        )
    width = float(match[1]) * UNITS[match[2]]
    if not NARROWEST <= width <= WIDEST:
        low, high = (f"{end / UNITS['mm']:.0f}mm" for end in (NARROWEST, WIDEST))
        raise ConfigError(
            f"{flag} {text}: a figure is between {low} and {high} wide.", code="width-out-of-range", value=text
        )
    return width


def letters(room: float, size: float, *, bold: bool = False) -> int:
    """How many letters of `size` points fit into `room` inches: at least four."""
    return max(4, int(room / (size * (BOLD if bold else LETTER))))


def long(texts: Sequence[str], size: float) -> float:
    """The inches that the longest of the texts takes."""
    return max(map(len, texts), default=0) * size * DIGIT


def wrapped(text: str, room: float, size: float, *, bold: bool = False) -> list[str]:
    """The lines of a text that is to fit into `room` inches."""
    return textwrap.wrap(text, letters(room, size, bold=bold)) or [""]


def packed(facts: str, joint: str, room: float, size: float) -> list[str]:
    """The lines of facts with a joint between them, none of which begins or ends a line."""
    lines: list[str] = []
    for fact in facts.split(joint):
        if lines and len(lines[-1] + joint + fact) <= letters(room, size):
            lines[-1] += joint + fact
        else:
            lines += wrapped(fact, room, size)
    return lines


def legend_columns(names: Sequence[str], room: float, size: float, handle: float) -> tuple[int, int]:
    """Columns and rows of a legend in `room`; `handle`: the length of its sign with the gaps, in inches."""
    for columns in range(len(names), 1, -1):
        rows, more = divmod(len(names), columns)  # filled column by column; the first ones have one more
        starts = [rows * column + min(column, more) for column in range(columns + 1)]
        if sum(long(names[start:end], size) + handle for start, end in pairwise(starts)) <= room:
            return columns, rows + bool(more)
    return 1, len(names)


def grow(figure: Figure, extra: float) -> None:
    """Add room at the top; everything else stays as many inches above the lower edge."""
    if extra <= 0:
        return
    from matplotlib.transforms import Bbox

    old = figure.get_figheight()
    part = old / (old + extra)
    corners = [
        figure.transFigure.inverted().transform(legend.get_bbox_to_anchor().get_points()) for legend in figure.legends
    ]
    figure.set_figheight(old + extra)
    for axes in figure.axes:
        place = axes.get_position()
        axes.set_position((place.x0, place.y0 * part, place.width, place.height * part))
    for text in figure.texts:
        text.set_y(text.get_position()[1] * part)
    for legend, corner in zip(figure.legends, corners, strict=True):
        legend.set_bbox_to_anchor(Bbox(corner * [1, part]), transform=figure.transFigure)
