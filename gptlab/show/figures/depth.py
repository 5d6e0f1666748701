"""Gradient against depth: one small panel per variant, with the baseline as a grey ghost in each.

A dozen lines in one panel cannot be told apart, least of all in greyscale; the same line a dozen times, each beside the
same ghost, can.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gptlab.metrics import metric as declared
from gptlab.show.figures import bands, panels, style
from gptlab.show.formats import ratio
from gptlab.store.study import Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {"grad_norm": "L2 norm of the gradient", "grad_mean_abs": "Mean absolute gradient"}


def depth_figure(study: Study, metric: str, width: float | None = None) -> Figure | None:
    """The figure of `metric` (`grad_norm` or `grad_mean_abs`) by layer; None when nothing was measured.

    Logarithmic axis, shared by all panels. A gradient of exactly zero has no place on it: open triangle on the floor.
    `width` in inches.
    """
    rows = study.depth(metric)
    if not rows["value"].gt(0).any():
        return None
    measured = set(rows["label"])
    labels, cut = panels.shown([label for label in dict.fromkeys(study.runs["label"]) if label in measured])
    baselines = set(study.runs["run"][study.runs["is_baseline"]])
    figure, every = panels.grid(len(labels), width)
    notes: list[str] = []
    floor, ceiling = _limits(rows["value"])
    for axes, label in zip(every, labels, strict=True):
        own = rows[rows["label"] == label]
        compared = set(study.runs["baseline"][study.runs["label"] == label]) & baselines
        ghosts = rows[rows["run"].isin(compared) & (rows["label"] != label)]
        _draw(axes, ghosts, floor, {"color": style.GHOST, "linewidth": 3.2, "zorder": 2})
        color = style.INK if not compared or set(own["run"]) & baselines else style.BLUE
        line = {"color": color, "linewidth": 1.5, "marker": "o", "markersize": 3, "zorder": 3}
        _draw(axes, own, floor, line)
        notes.append(_note(own, ghosts))
        axes.set_yscale("log")
        axes.set_ylim(floor, ceiling)
    panels.titles(figure, every, labels, notes)
    _label_axes(figure, every, rows, metric)
    when = ", before training" if study.trained else ""
    style.heading(figure, f"{TITLES[metric]} by depth{when}", _subtitle(study, rows, cut))
    return figure


def _draw(axes: Axes, rows: pd.DataFrame, floor: float, look: dict[str, Any]) -> None:
    """Geometric mean and band from three seeds up, else a thin line per run; zeros as triangles on the floor.

    Where some seed's gradient is zero or not finite, there is no geometric mean: a gap.
    """
    import numpy as np

    table = rows.pivot_table(index="run", columns="layer", values="value", sort=True, dropna=False)
    layers, values = table.columns.to_numpy(dtype=int), table.to_numpy(dtype=float)
    positive = np.where(values > 0, values, math.nan)
    if len(table) >= bands.LEAST:
        middle, low, high = (np.exp(line) for line in bands.t_band(np.log(positive)))
        axes.plot(layers, middle, **look)
        color, order = look["color"], look["zorder"] - 0.5
        axes.fill_between(layers, low, high, color=color, alpha=0.2, linewidth=0, zorder=order)
    else:
        several = {"linewidth": look["linewidth"] * 0.6, "alpha": 0.7} if len(table) > 1 else {}
        for line in positive:
            axes.plot(layers, line, **{**look, **several})
    for line in values:
        zeros = layers[line == 0]
        axes.plot(
            zeros, [floor] * len(zeros), color=look["color"], zorder=look["zorder"], linestyle="", marker="v",
            markersize=6, markerfacecolor="white", clip_on=False,
        )  # fmt: skip


def _note(own: pd.DataFrame, ghosts: pd.DataFrame) -> str:
    """What to read off: how the first layer's gradient stands to the last one's and to the baseline's first one."""
    if not own["value"].map(math.isfinite).any():
        return "not finite"
    if own["value"].eq(0).all():
        return "exactly zero"
    (first, last), (ghost, _) = _ends(own), _ends(ghosts)
    words = [f"first/last {ratio(first, last).replace('=', 'x1')}"] if first and last else []
    if first and ghost:
        words.append(f"first/baseline {ratio(first, ghost).replace('=', 'same')}")
    return ",  ".join(words)


def _ends(rows: pd.DataFrame) -> tuple[float | None, float | None]:
    """Geometric mean over the seeds of the first and of the last layer's value; None where there is no such number."""
    ends: list[float | None] = []
    for place in (0, -1):
        values = [float(run["value"].iloc[place]) for _, run in rows.groupby("run")]
        usable = bool(values) and all(value > 0 for value in values)
        ends.append(math.exp(math.fsum(map(math.log, values)) / len(values)) if usable else None)
    return ends[0], ends[1]


def _limits(values: pd.Series[float]) -> tuple[float, float]:
    """Axis limits with room around the positive finite values, never less than a decade."""
    usable = [float(value) for value in values if 0 < value < math.inf]
    low, high = math.log10(min(usable)), math.log10(max(usable))
    room = max(0.08 * (high - low), (1 - (high - low)) / 2, 0.1)
    return 10.0 ** (low - 2 * room), 10.0 ** (high + room)


def _label_axes(figure: Figure, every: list[Axes], rows: pd.DataFrame, metric: str) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    deepest = max(int(rows["layer"].max()), 1)
    for axes in every:
        axes.set_xlim(-0.04 * deepest - 0.2, 1.04 * deepest + 0.2)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_minor_locator(LogLocator(subs="auto", numticks=7) if len(every) <= 16 else NullLocator())
        axes.yaxis.set_minor_formatter(NullFormatter())
        low, high = axes.get_ylim()
        if high / low > 100:
            axes.yaxis.set_major_locator(LogLocator(numticks=7))
        else:  # powers of ten alone would label one place or two
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            form = ".0e" if low < 1e-3 else "g"
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _, form=form: f"{value:{form}}"))
    panels.axis_labels(figure, "layer (0 is nearest the input)", declared(metric).unit)


def _subtitle(study: Study, rows: pd.DataFrame, cut: str) -> str:
    seeds = sorted(set(rows["seed"]))
    words = [style.plain(study.plan.study, 40), f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds[:8]))}"]
    if study.has_baseline:
        names = list(dict.fromkeys(study.runs["label"][study.runs["is_baseline"]]))
        shown = ", ".join(style.apart(names, 40 if len(names) == 1 else 24))
        words.append("grey: baseline" if names == ["baseline"] else f"grey: {shown} (baseline)")
    if rows["value"].eq(0).any():
        words.append("open triangle: exactly zero")
    if rows.groupby("label")["run"].nunique().max() >= bands.LEAST:
        words.append("band: 95% t interval of the geometric mean")
    return style.joined([*words, cut])
