"""Loss while training: all variants in one panel with a closer look at the end, or a panel each when they are many."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gptlab.show.figures import bands, page, panels, style
from gptlab.show.figures.guesses import draw_guesses, guesses
from gptlab.show.figures.outliers import short, window
from gptlab.show.formats import significant
from gptlab.store.study import Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHOICES = ("validation_loss", "train_loss")  # the first that has been measured more than once
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, GAP = 10.5, 4.8, 0.75, 0.25, 1.2, 0.6, 0.7  # inches
BELOW = 0.85  # between two panels one below the other
POINTS = 400  # as many as the width can show; a longer history is thinned, its last point kept
EARLY = 0.1  # of the training; what lies above all later values there is cut off, or no difference could be seen
MARKS = 9  # markers along a line


def curves_figure(study: Study, width: float | None = None) -> Figure | None:
    """Loss against tokens (steps where no tokens were counted); None when no run was trained. `width` in inches."""
    found = _measured(study)
    if found is None:
        return None
    rows, metric, noun = found
    order = dict.fromkeys(study.runs["label"])
    labels, cut = panels.shown([label for label in order if rows["label"].eq(label).any()])
    rows = rows[rows["label"].isin(labels)]
    divisor, below = style.unit(float(rows["x"].max()), noun)
    rows = rows.assign(x=rows["x"] / divisor)
    beside = style.named(metric)
    draw = _together if len(labels) <= len(style.LINES) else _apart
    figure = draw(study, rows, labels, below, beside, width)
    dotted = "; ".join(guess.words for guess in guesses(study)) if draw is _apart else ""
    words = [style.plain(study.plan.study, 40), _seeds(rows), f"dotted: {dotted}" if dotted else "", cut, _beyond(rows)]
    style.heading(figure, beside.split(" (")[0].capitalize(), style.joined(words))
    return figure


def _measured(study: Study) -> tuple[pd.DataFrame, str, str] | None:
    """The rows of the loss to draw, with a column x; NaN values are left out."""
    steps = study.steps
    for metric in CHOICES:
        rows = steps[(steps["metric"] == metric) & steps["value"].map(math.isfinite)]
        if rows.groupby("run").size().max() > 1 if len(rows) else False:
            noun = "tokens" if rows["tokens"].max() > 0 else "steps"
            rows = rows.assign(x=rows["tokens" if noun == "tokens" else "step"].astype(float))
            return rows.sort_values(["run", "step"], kind="stable"), metric, noun
    return None


def _together(
    study: Study, rows: pd.DataFrame, labels: list[str], below: str, beside: str, asked: float | None
) -> Figure:
    from matplotlib.figure import Figure

    width = asked or WIDTH
    names = style.apart(labels, page.letters(width - 0.9, 8.5))
    columns, legend_rows = page.legend_columns(names, width - 0.16, 8.5, 0.7)
    top = TOP + page.ROW * (legend_rows - 1)
    stacked = width < page.TWO_PANELS
    wide, high = (width - LEFT - RIGHT - (0 if stacked else GAP)) / (1 if stacked else 2), HEIGHT - TOP - BOTTOM
    high = min(high, 0.8 * wide) if stacked else high
    start, end = float(rows["x"].min()), float(rows["x"].max())
    # A line takes two points: with few evaluations, the closer look begins earlier.
    half = min((start + end) / 2, sorted(set(rows["x"]))[-2:][0])
    closer = "The second half" if half == (start + end) / 2 else "The end"
    lines = guesses(study)
    looks = [(start, "From the start"), *([(half, closer)] if half > start else [])]
    height = top + BOTTOM + high * (len(looks) if stacked else 1) + (BELOW * (len(looks) - 1) if stacked else 0)
    figure = Figure(figsize=(width, height))
    for place, (since, title) in enumerate(looks):
        left = LEFT + (0 if stacked else place * (wide + GAP))
        low = height - top - high - (place * (high + BELOW) if stacked else 0)
        axes = figure.add_axes((left / width, low / height, wide / width, high / height))
        later = rows[rows["x"] >= since]
        for number, (label, name) in enumerate(zip(labels, names, strict=True)):
            _draw(axes, later[later["label"] == label], style.LINES[number], name, end)
        # A run that blows up must not set the scale.
        ended = set(rows["run"][rows["x"] == end]) if place else ()
        if ended or _far(later):
            near = later[~later["run"].isin(_far(later))]
            whole = near[near["run"].isin(ended)]
            axes.set_ylim(*_limits(next((rows for rows in (whole, near, later) if len(rows)), rows)))
        draw_guesses(axes, lines)
        axes.set_title(title, fontweight="bold")
        axes.set_xlabel(below)
        axes.set_ylabel(beside)
        axes.set_xlim(since - 0.02 * (end - since), end + 0.03 * (end - since))
        _arrows(axes)
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="upper left", ncols=columns, fontsize=8.5, handlelength=3.4, columnspacing=1.6,
        bbox_to_anchor=(0.08 / width, 1 - 0.62 / height), borderaxespad=0.0, labelspacing=0.35,
    )  # fmt: skip
    return figure


def _apart(study: Study, rows: pd.DataFrame, labels: list[str], below: str, beside: str, width: float | None) -> Figure:
    figure, every = panels.grid(len(labels), width)
    notes: list[str] = []
    end = float(rows["x"].max())
    base = rows[rows["run"].isin(set(study.runs["run"][study.runs["is_baseline"]]))]
    ghost = {"color": style.GHOST, "linestyle": "-", "marker": "", "linewidth": 3.2, "zorder": 2}
    first = float(rows["x"].min())
    late = rows[rows["x"] >= first + EARLY * (end - first)]
    near = late[~late["run"].isin(_far(late))]
    limits = _limits(near if len(near) else rows)
    lines = guesses(study)
    for axes, label in zip(every, labels, strict=True):
        own = rows[rows["label"] == label]
        mine = base["label"].eq(label).any()
        if not mine:
            for name in dict.fromkeys(base["label"]):
                _draw(axes, base[base["label"] == name], ghost, "", end)
        color = style.INK if mine or base.empty else style.BLUE
        _draw(axes, own, {"color": color, "linestyle": "-", "marker": ""}, "", end)
        last = own.groupby("run")["value"].last()
        note = f"ends at {significant(float(last.mean()), 4)}" + (f",  mean of {len(last)}" if len(last) > 1 else "")
        notes.append(note)
        axes.set_ylim(*limits)
        _arrows(axes)
        draw_guesses(axes, lines, named=False)
    panels.titles(figure, every, labels, notes)
    panels.axis_labels(figure, below, beside)
    return figure


def _draw(axes: Axes, rows: pd.DataFrame, look: dict[str, Any], label: str, end: float) -> None:
    """Mean and band where all seeds go on; each run as a thin line where they are too few, or fewer than planned.

    A run that ends before the others do is marked with a cross at its last finite value.
    """
    if rows.empty:  # it ended before
        return
    table = rows.pivot_table(index="run", columns="x", values="value", aggfunc="last", sort=True)
    table = table.iloc[:, _thinned(table.shape[1])]
    x = table.columns.to_numpy(dtype=float)
    look = {"linewidth": 1.6, "markersize": 4, "markevery": max(1, len(x) // MARKS), "zorder": 3, **look}
    banded = len(table) >= bands.LEAST
    legend = label or None
    if banded:
        mean, lower, upper = bands.t_band(table)
        axes.plot(x, mean, label=legend, **look)
        axes.fill_between(x, lower, upper, color=look["color"], alpha=0.18, linewidth=0, zorder=look["zorder"] - 0.5)
        ends = table.iloc[:, -1].dropna()  # of each seed, so that one can see what the mean is made of
        axes.plot([x[-1]] * len(ends), ends, linestyle="", marker=".", markersize=3.5, color=look["color"], alpha=0.7)
    broken = table.isna().to_numpy().any()
    thin = {**look, "linewidth": look["linewidth"] * (0.55 if len(table) > 1 else 1), "alpha": 0.9}
    for _, values in table.iterrows() if broken or not banded else ():
        own = values.dropna()
        axes.plot(own.index.to_numpy(dtype=float), own.to_numpy(), label=None if banded else legend, **thin)
        legend = legend if banded else None
        if len(own) and own.index[-1] < end:
            axes.plot(own.index[-1:], own.iloc[-1:], color=look["color"], marker="x", markersize=7, zorder=4)


def _far(rows: pd.DataFrame) -> set[str]:
    """Runs whose loss rises so high that no other could be told from another beside it."""
    highest = rows.groupby("run")["value"].max()
    # Of two variants one may be far: half of the runs, so that the middle of all runs says nothing.
    seen = window(highest) or window(rows.groupby("label")["value"].max())
    return set() if seen is None else set(highest.index[highest > seen[1]])


def _beyond(rows: pd.DataFrame) -> str:
    """`beyond the axis: relu (up to 1.2e+06)`."""
    own = rows[rows["run"].isin(_far(rows))]
    highest = own.groupby("label", sort=False)["value"].max()
    names = dict(zip(highest.index, style.apart(list(map(str, highest.index)), 24), strict=True))
    words = [f"{names[label]} (up to {short(value)})" for label, value in highest.head(3).items()]
    return f"beyond the axis: {', '.join(words)}{', ...' if len(highest) > 3 else ''}" if words else ""


def _arrows(axes: Axes) -> None:
    """An arrow at the edge where a line leaves the panel upwards or downwards, at its last place inside."""
    low, high = axes.get_ylim()
    left, right = axes.get_xlim()
    for line in list(axes.lines):
        points = [
            (float(x), float(y))
            for x, y in line.get_xydata().tolist()  # type: ignore[union-attr]
            if left <= x <= right and not math.isnan(y)
        ]
        for marker, edge, sign in (("^", high, 1), ("v", low, -1)):
            out = [sign * (y - edge) > 0 for _, y in points]
            leaves = next((n for n, (inside, after) in enumerate(pairwise(out)) if after and not inside), None)
            if leaves is None and out and all(out):
                leaves = 0
            if leaves is not None:
                x, color = points[leaves][0], line.get_color()
                axes.plot(x, edge, marker=marker, markersize=6, color=color, clip_on=False, zorder=6)


def _limits(rows: pd.DataFrame) -> tuple[float, float]:
    low, high = float(rows["value"].min()), float(rows["value"].max())
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


def _thinned(number: int) -> list[int]:
    step = math.ceil(number / POINTS)
    return sorted({*range(0, number, step), number - 1})


def _seeds(rows: pd.DataFrame) -> str:
    number = rows.groupby("label")["run"].nunique()
    least, most = int(number.min()), int(number.max())
    words = f"{least} to {most} seeds" if least < most else f"{most} seed{'s' if most > 1 else ''}"
    return f"{words}, {bands.WORDS}" if most >= bands.LEAST else f"{words}, each a line" if most > 1 else words
