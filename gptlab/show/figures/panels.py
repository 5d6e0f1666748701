"""Small multiples: a grid of panels of one size, whatever their number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (2.25, 1.75)  # inches
MARGINS = {"left": 0.85, "right": 0.2, "top": 1.1, "bottom": 0.6}
GAPS = (0.22, 0.62)
MOST = 24  # more panels than this are not looked at


def grid(number: int) -> tuple[Figure, list[Axes]]:
    """A figure with `number` panels, as many columns as stay readable; only the outer ones carry tick labels."""
    from matplotlib.figure import Figure

    columns = min(number, 4 if number <= 16 else 6)
    lines = math.ceil(number / columns)
    wide, high = PANEL if number > 1 else (4.6, 3.0)
    width = max(MARGINS["left"] + columns * (wide + GAPS[0]) - GAPS[0] + MARGINS["right"], 5.6)
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


def axis_labels(figure: Figure, below: str, beside: str) -> None:
    """One label for all x axes and one for all y axes."""
    width, height = figure.get_size_inches()
    figure.text(0.5, 0.12 / height, below, ha="center", va="bottom")
    figure.text(0.1 / width, 0.5, beside, rotation=90, ha="left", va="center")
