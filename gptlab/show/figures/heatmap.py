"""Two knobs at once: the mean over the seeds for each pair of settings, written into its cell."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gptlab.errors import GptlabError
from gptlab.metrics import metric as declared
from gptlab.show.figures import style
from gptlab.show.figures.knobs import Knobs
from gptlab.show.figures.outliers import short, window
from gptlab.show.formats import column
from gptlab.store.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 24  # settings of one knob
CELL = (0.86, 0.42)  # inches
BAR = 0.85  # of the colours, with its numbers
MARGINS = {"left": 0.5, "right": 1.25, "top": 0.8, "bottom": 0.55}


def heatmap_figure(study: Study, metric: str, found: Knobs, asked: float | None = None) -> Figure | None:
    """None unless exactly two knobs were varied, and at least half of the pairs have a value.

    `asked`: the width in inches.
    """
    from matplotlib.figure import Figure

    if len(found.names) != 2:
        return None
    below, beside = sorted(found.names, key=lambda name: len(found.values(name)), reverse=True)
    xs, ys = found.values(below), found.values(beside)
    if not (2 <= len(xs) <= MOST and 2 <= len(ys) <= MOST):
        return None
    means = found.table.groupby([beside, below])["value"].mean().unstack().reindex(index=ys, columns=xs)
    if means.notna().to_numpy().mean() < 0.5:
        return None
    longest = [min(max(map(len, values)), 20) for values in (xs, ys)]
    left, bottom = (
        MARGINS["left"] + 0.075 * longest[1],
        MARGINS["bottom"] + (0.075 * longest[0] if longest[0] > 9 else 0.2),
    )
    wide, high = max(CELL[0] * len(xs), 2.6), CELL[1] * len(ys)
    width, height = max(left + wide + MARGINS["right"], 5.6), MARGINS["top"] + high + bottom
    if asked:
        need = left + 0.4 * len(xs) + BAR
        width, wide = asked, min(wide, asked - left - BAR)
        if asked < need:
            raise GptlabError(
                f"{len(xs)} columns of numbers do not fit into {asked:.1f} inches; --width {25.4 * need:.0f}mm does.",
                code="figure-too-narrow",
                width=asked,
            )
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((left / width, bottom / height, wide / width, high / height))
    table = means.to_numpy(dtype=float)
    finite = [float(value) for value in table.flat if math.isfinite(value)]
    ends = window(finite) or (min(finite), max(finite))
    image = axes.pcolormesh(table, cmap="cividis", edgecolors="white", linewidth=1.5, vmin=ends[0], vmax=ends[1])
    _cells(figure, table, declared(metric).direction, *ends)
    axes.set_xticks([place + 0.5 for place in range(len(xs))], style.apart(xs, 20))
    axes.set_yticks([place + 0.5 for place in range(len(ys))], style.apart(ys, 20))
    axes.invert_yaxis()
    axes.tick_params(length=0)
    if longest[0] > 9:
        axes.tick_params(axis="x", labelrotation=90)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(style.plain(below, 60))
    axes.set_ylabel(style.plain(beside, 40))
    bar = figure.add_axes(((left + wide + 0.18) / width, bottom / height, 0.13 / width, high / height))
    figure.colorbar(image, cax=bar)
    bar.grid(visible=False)
    bar.tick_params(labelsize=7.5)
    seeds = found.table.groupby("label").size().max()
    words = [
        style.plain(study.plan.study, 40),
        f"mean of {seeds} seeds" if seeds > 1 else "one seed",
        "framed: best" if declared(metric).direction != "neither" else "",
        "beyond the colours: far off" if ends != (min(finite), max(finite)) else "",
        "hatched: no value" if any(math.isnan(value) for line in table for value in line) else "",
    ]
    style.heading(figure, style.named(metric).capitalize(), style.joined(words))
    return figure


def _cells(figure: Figure, table: Any, direction: str, low: float, high: float) -> None:
    """The number in each cell, dark on light or light on dark; a frame around the best; hatches where none is."""
    import numpy as np
    from matplotlib.patches import Rectangle

    axes = figure.axes[0]
    values = np.asarray(table, dtype=float)
    texts = iter(column([float(value) if low <= value <= high else None for value in values.flat]))
    for (line, place), value in np.ndenumerate(values):
        text = next(texts) or short(float(value))  # what is far off has a format of its own
        if math.isnan(value):
            look: dict[str, Any] = {"facecolor": "white", "hatch": "////", "edgecolor": style.GHOST, "linewidth": 0}
            axes.add_patch(Rectangle((place, line), 1, 1, **look))
            continue
        light = high > low and (value - low) / (high - low) > 0.55
        color = style.INK if light else "white"
        axes.text(place + 0.5, line + 0.5, text, ha="center", va="center", fontsize=8, color=color)
    if direction != "neither":
        goal = np.nanargmax(values) if direction == "higher" else np.nanargmin(values)
        line, place = np.unravel_index(goal, values.shape)
        frame: dict[str, Any] = {"fill": False, "edgecolor": style.VERMILION, "linewidth": 2.2, "zorder": 5}
        axes.add_patch(Rectangle((float(place) + 0.04, float(line) + 0.06), 0.92, 0.88, **frame))
