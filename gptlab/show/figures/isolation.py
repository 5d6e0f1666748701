"""Isolation: for each setting of one knob, the best that any setting of the other knobs reached.

So a knob is judged with its companions tuned, and not at whatever they happened to be (the tuning playbook's plot).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gptlab.metrics import metric as declared
from gptlab.show.figures import bands, page, style
from gptlab.show.figures.knobs import Knobs, number
from gptlab.show.figures.outliers import short, window
from gptlab.show.figures.panels import MARGINS
from gptlab.store.study import Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_KNOBS, MOST_VALUES = 6, 40
DRAWN = 300  # open circles of one panel
HIGH, WIDE, NARROW, GAP = 2.6, 3.1, 2.0, 0.25  # of a panel, in inches


def isolation_figure(study: Study, metric: str, found: Knobs, asked: float | None = None) -> Figure | None:
    """One panel per knob; None unless two knobs were varied, or one over three numbers or more.

    `asked`: the width in inches.
    """
    from matplotlib.figure import Figure

    direction = declared(metric).direction
    names = [name for name in found.names if 2 <= found.table[name].nunique() <= MOST_VALUES][:MOST_KNOBS]
    alone = len(names) == 1 and len(found.values(names[0])) > 2 and number(found.values(names[0])[0]) is not None
    if direction == "neither" or not (alone or len(names) > 1):
        return None
    columns, wide = min(len(names), 3), WIDE
    if asked:
        room = asked - MARGINS["left"] - MARGINS["right"] + GAP
        columns = max(1, min(columns, int(room / (NARROW + GAP))))
        wide = room / columns - GAP
    lines = -(-len(names) // columns)
    longest = max(len(value) for name in names for value in found.values(name))
    bottom, gap = 0.35 + 0.055 * min(longest, 18), 0.75 + 0.055 * min(longest, 18)
    width = asked or max(MARGINS["left"] + columns * (wide + GAP) + MARGINS["right"], 6.6)
    height = MARGINS["top"] + lines * (HIGH + gap) - gap + bottom
    figure = Figure(figsize=(width, height))
    values = found.table["value"]
    if seen := window(found.table.groupby("label")["value"].mean()):
        values = values[values.between(*_inside(found, seen))]
    room = 0.07 * (float(values.max()) - float(values.min()) or abs(float(values.max())) or 1.0)
    for place, name in enumerate(names):
        line, column = divmod(place, columns)
        left = MARGINS["left"] + column * (wide + GAP)
        low = height - MARGINS["top"] - (line + 1) * HIGH - line * gap
        axes = figure.add_axes((left / width, low / height, wide / width, HIGH / height))
        axes.set_ylim(float(values.min()) - room, float(values.max()) + room)
        _draw(axes, found, name, higher=direction == "higher")
        _arrows(axes, found, name)
        axes.tick_params(labelleft=column == 0)
        axes.set_title(style.plain(name, page.letters(wide - 0.1, 9, bold=True)), fontweight="bold", pad=8)
    figure.text(0.1 / width, 0.5, style.named(metric), rotation=90, ha="left", va="center")
    others = "other knobs" if len(names) > 2 else "other knob"
    lost = sorted(set(study.runs["label"]) - set(found.table["label"]))  # no seed brought a number: diverged, or failed
    words = [
        style.plain(study.plan.study, 40),
        f"filled: best over the {others}; open: the rest" if len(names) > 1 else "mean over the seeds",
        "bars: 95% t interval" if found.table.groupby("label").size().max() >= bands.LEAST else "",
        f"without a number: {len(lost)} of {study.runs['label'].nunique()} variants" if lost else "",
    ]
    title = f"{metric.replace('_', ' ').capitalize()} by knob" + (
        ", the others at their best" if len(names) > 1 else ""
    )
    style.heading(figure, title, style.joined(words))
    return figure


def _inside(found: Knobs, seen: tuple[float, float]) -> tuple[float, float]:
    """Ends of all runs of the variants whose means are within `seen`."""
    means = found.table.groupby("label")["value"].transform("mean")
    near = found.table["value"][means.between(*seen)]
    return float(near.min()), float(near.max())


def _arrows(axes: Axes, found: Knobs, name: str) -> None:
    """Means beyond the axis, as arrows at its edge with the value of the farthest."""
    place = {value: number_ for number_, value in enumerate(found.values(name))}
    means = found.table.groupby([name, "label"], sort=False)["value"].mean().reset_index()
    low, high = axes.get_ylim()
    for marker, far, edge in (("^", means["value"] > high, high), ("v", means["value"] < low, low)):
        for setting, own in means[far].groupby(name, sort=False):
            farthest = own["value"].max() if marker == "^" else own["value"].min()
            x = place[str(setting)]
            axes.plot(x, edge, marker=marker, markersize=7, color=style.VERMILION, clip_on=False, zorder=5)
            axes.annotate(
                short(farthest), (x, edge), (0, -7 if marker == "^" else 7), textcoords="offset points", fontsize=7,
                ha="center", va="top" if marker == "^" else "bottom",
            )  # fmt: skip


def best(found: Knobs, name: str, higher: bool) -> pd.DataFrame:
    """For each setting of `name` the variant with the best mean over its seeds: columns setting, label, mean."""
    means = found.table.groupby([name, "label"], sort=False)["value"].mean().reset_index(name="mean")
    means = means.sort_values("mean", ascending=not higher, kind="stable").drop_duplicates(name)
    place = {value: number_ for number_, value in enumerate(found.values(name))}
    means = means.rename(columns={name: "setting"})
    return means.iloc[means["setting"].map(place).argsort(kind="stable")].reset_index(drop=True)


def _draw(axes: Axes, found: Knobs, name: str, higher: bool) -> None:
    settings = found.values(name)
    place = {value: number_ for number_, value in enumerate(settings)}
    means = found.table.groupby([name, "label"], sort=False)["value"].mean().reset_index()
    top = best(found, name, higher)
    kept = set(zip(top["setting"], top["label"], strict=True))
    rest = means[[key not in kept for key in zip(means[name], means["label"], strict=True)]]
    rest = rest.sort_values("value", kind="stable").iloc[:: max(1, -(-len(rest) // DRAWN))]
    axes.plot(
        rest[name].map(place), rest["value"], linestyle="", marker="o", markersize=4.5, markerfacecolor="white",
        markeredgecolor="#888888", zorder=2,
    )  # fmt: skip
    ordered = number(settings[0]) is not None and number(settings[-1]) is not None
    xs = top["setting"].map(place)
    axes.plot(
        xs, top["mean"], linestyle="-" if ordered else "", color=style.BLUE, linewidth=1.4, marker="o", markersize=6,
        zorder=4,
    )  # fmt: skip
    places = found.table.groupby("label", sort=False).indices
    for x, (setting, label) in zip(xs, zip(top["setting"], top["label"], strict=True), strict=True):
        runs = found.table.iloc[places[label]]
        own = runs["value"][runs[name] == setting].to_numpy()
        if len(own) >= bands.LEAST:
            _, low, high = bands.t_band(own.reshape(-1, 1))
            axes.plot([x, x], [low[0], high[0]], color=style.BLUE, linewidth=1.0, zorder=3)
            floor, ceiling = axes.get_ylim()
            for marker, edge, beyond in (("v", floor, low[0] < floor), ("^", ceiling, high[0] > ceiling)):
                if beyond:  # the interval goes on
                    axes.plot(x, edge, marker=marker, markersize=5, color=style.BLUE, clip_on=False, zorder=5)
    longest = max(map(len, settings))
    axes.set_xticks(range(len(settings)), style.apart(settings, 18))
    if longest * len(settings) > 34:
        axes.tick_params(axis="x", labelrotation=90 if len(settings) > 8 else 40, labelsize=8)
        for tick in axes.get_xticklabels():
            tick.set_horizontalalignment("center" if len(settings) > 8 else "right")
    axes.set_xlim(-0.5, len(settings) - 0.5)
    axes.grid(visible=False, axis="x")
