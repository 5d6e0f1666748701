"""Small multiples: a grid of panels of one size, whatever their number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gptlab.show.figures import page, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (2.25, 1.75)  # inches
MARGINS = {"left": 0.85, "right": 0.2, "top": 1.1, "bottom": 0.6}
GAPS = (0.22, 0.62)
NARROW = 1.0  # the least width of a panel
MOST = 24  # more panels than this are not looked at


def grid(number: int, width: float | None = None) -> tuple[Figure, list[Axes]]:
    """A figure with `number` panels, as many columns as stay readable; only the outer ones carry tick labels."""
    from matplotlib.figure import Figure

    wide, high = PANEL if number > 1 else (4.6, 3.0)
    if width is None:
        columns = min(number, 4 if number <= 16 else 6)
        width = max(MARGINS["left"] + columns * (wide + GAPS[0]) - GAPS[0] + MARGINS["right"], 5.6)
    else:
        room = width - MARGINS["left"] - MARGINS["right"] + GAPS[0]
        columns = max(1, min(number, int(room / (NARROW + GAPS[0]))))
        wide = room / columns - GAPS[0]
        high = min(high, max(1.1 * wide, 1.1))
    lines = math.ceil(number / columns)
    height = MARGINS["top"] + lines * (high + GAPS[1]) - GAPS[1] + MARGINS["bottom"]
    figure = Figure(figsize=(width, height))
    panels: list[Axes] = []
    for place in range(number):
        line, column = divmod(place, columns)
        left = MARGINS["left"] + column * (wide + GAPS[0])
        bottom = height - MARGINS["top"] - (line + 1) * high - line * GAPS[1]
        panels.append(figure.add_axes((left / width, bottom / height, wide / width, high / height)))
        panels[-1].tick_params(labelleft=column == 0, labelbottom=place + columns >= number)
    return figure, panels


def shown(labels: Sequence[str], most: int = MOST) -> tuple[list[str], str]:
    """The first labels, the baseline among them, and words for the subtitle about those that are left out."""
    if len(labels) <= most:
        return list(labels), ""
    return list(labels[:most]), f"the first {most} of {len(labels):,} variants"


def titles(figure: Figure, every: Sequence[Axes], labels: Sequence[str], notes: Sequence[str]) -> None:
    """Label and note of each panel above it, as long as the panel is wide; no two labels alike."""
    room = every[0].get_position().width * figure.get_figwidth()
    texts = style.apart(labels, page.letters(room - 0.15, 9, bold=True))
    for axes, text, note in zip(every, texts, notes, strict=True):
        axes.set_title(text, fontweight="bold", pad=15)
        first = page.packed(note, ",  ", room, 7)[0]  # in a narrow panel, the facts that fit
        axes.annotate(first, (0, 1), (0, 4), "axes fraction", "offset points", fontsize=7, color="#555555")


def axis_labels(figure: Figure, below: str, beside: str) -> None:
    """One label for all x axes and one for all y axes."""
    width, height = figure.get_size_inches()
    figure.text(0.5, 0.12 / height, below, ha="center", va="bottom")
    figure.text(0.1 / width, 0.5, beside, rotation=90, ha="left", va="center")
