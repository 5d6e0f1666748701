"""Loss against what it costs: parameters, and FLOPs. The variants that no other beats in both are the front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gptlab.metrics import metric as declared
from gptlab.show.figures import bands, page, style
from gptlab.show.figures.outliers import short, window
from gptlab.store.study import Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, GAP = 10.5, 4.6, 0.8, 0.3, 0.9, 0.6, 0.85  # inches
DRAWN = 300  # of the variants off the front
WIDE = 20  # times the cheapest: the axis is logarithmic
NAMED = 24  # with more variants, only the front is named


def pareto_figure(study: Study, metric: str, asked: float | None = None) -> Figure | None:
    """Mean of `metric` over the seeds against both costs; None without two variants, or a better end of the scale.

    `asked`: the width in inches.
    """
    from matplotlib.figure import Figure

    direction = declared(metric).direction
    points = _points(study, metric)
    costs = [cost for cost in ("parameters", "flops") if points[cost].nunique() > 1]
    if direction == "neither" or len(points) < 2 or not costs:
        return None
    width = asked or (WIDTH if len(costs) == 2 else 0.62 * WIDTH)
    stacked = width < page.TWO_PANELS and len(costs) == 2
    wide = width - LEFT - RIGHT if stacked else (width - LEFT - RIGHT - GAP * (len(costs) - 1)) / len(costs)
    high = min(HEIGHT - TOP - BOTTOM, 0.85 * wide) if asked else HEIGHT - TOP - BOTTOM
    height = TOP + BOTTOM + high + (high + GAP if stacked else 0)
    figure = Figure(figsize=(width, height))
    for place, cost in enumerate(costs):
        left = LEFT + (0 if stacked else place * (wide + GAP))
        low = height - TOP - high - (place * (high + GAP) if stacked else 0)
        axes = figure.add_axes((left / width, low / height, wide / width, high / height))
        known = points[points[cost].notna()]
        divisor, below = style.unit(float(known[cost].max()), _noun(study, cost))
        _draw(axes, known.assign(x=known[cost] / divisor), higher=direction == "higher")
        axes.set_xlabel(below)
        axes.set_ylabel(style.named(metric))
    seeds = int(points["seeds"].max())
    words = [
        style.plain(study.plan.study, 40),
        "filled and joined: Pareto front",
        f"bars: 95% t interval of the mean, {seeds} seeds" if seeds >= bands.LEAST else "",
    ]
    style.heading(figure, f"{metric.replace('_', ' ').capitalize()} against its cost", style.joined(words))
    return figure


def front(xs: list[float], ys: list[float], higher: bool = False) -> list[int]:
    """Places of the points that no other point beats: none is cheaper and at least as good, or better and as cheap."""
    order = sorted(range(len(xs)), key=lambda place: (xs[place], -ys[place] if higher else ys[place]))
    best: float | None = None
    found: list[int] = []
    for place in order:
        y = -ys[place] if higher else ys[place]
        if best is None or y < best or (y == best and xs[place] == xs[found[-1]]):
            best = y
            found.append(place)
    return found


def _points(study: Study, metric: str) -> pd.DataFrame:
    """One row per variant: label, y (mean), half interval (NaN below three seeds), seeds, own (a baseline), costs."""
    import numpy as np
    import pandas as pd
    from scipy.special import stdtrit

    runs = study.runs
    if not {metric, "parameters"} <= set(runs):
        return pd.DataFrame(columns=["label", "y", "half", "seeds", "own", "parameters", "flops"])
    table = runs[["label", "is_baseline"]].assign(
        y=runs[metric].astype("float64"),
        parameters=runs["parameters"].astype("float64"),
        flops=runs["run"].map(_flops(study)).astype("float64"),
    )
    table = table[table["y"].notna()]
    found = table.groupby("label", sort=False).agg(
        y=("y", "mean"), sd=("y", "std"), seeds=("y", "size"), own=("is_baseline", "any"),
        parameters=("parameters", "first"), flops=("flops", "mean"),
    )  # fmt: skip
    reach = stdtrit(np.maximum(found["seeds"] - 1, 1), (1 + bands.LEVEL) / 2) / np.sqrt(found["seeds"])
    found["half"] = (reach * found["sd"]).where(found["seeds"] >= bands.LEAST)
    return found.reset_index()


def _flops(study: Study) -> dict[str, float]:
    """Of the whole training where there was one, else of one forward pass per token."""
    if _trained(study):
        return {str(run): float(value) for run, value in study.steps.groupby("run")["flops"].max().items()}
    if "flops_forward_per_token" not in study.runs:
        return {}
    return dict(zip(study.runs["run"], study.runs["flops_forward_per_token"].astype("float64"), strict=True))


def _trained(study: Study) -> bool:
    return len(study.steps) > 0 and study.steps["flops"].max() > 0


def _noun(study: Study, cost: str) -> str:
    return cost if cost == "parameters" else "training FLOPs" if _trained(study) else "forward FLOPs per token"


def _draw(axes: Axes, points: pd.DataFrame, higher: bool) -> None:
    on = front(points["x"].tolist(), points["y"].tolist(), higher)
    points = _at_the_edge(axes, points)
    if points["x"].min() > 0 and points["x"].max() > WIDE * points["x"].min():
        axes.set_xscale("log")
    best, rest = points.iloc[on], points.drop(points.index[on])
    rest = rest.iloc[:: -(-len(rest) // DRAWN) or 1] if len(rest) else rest
    bars = best if len(points) > NAMED else points
    axes.errorbar(
        bars["x"], bars["y"], yerr=bars["half"].fillna(0), linestyle="", color="#888888", linewidth=0.8, zorder=2
    )
    axes.plot(best["x"], best["y"], color=style.BLUE, linewidth=1.2, drawstyle="steps-post", zorder=3)
    small = 3.5 if len(points) > 100 else 6.5
    for own, marker in ((False, "o"), (True, "s")):
        for part, face, edge, size in ((rest, "white", "#555555", small), (best, style.BLUE, style.BLUE, 6.5)):
            shown = part[(part["own"] == own) & part["beyond"].eq("")]
            axes.plot(
                shown["x"], shown["y"], marker=marker, markersize=6.5 if own else size, linestyle="",
                markerfacecolor=face, markeredgecolor=edge, zorder=4,
            )  # fmt: skip
    for marker in ("^", "v"):
        shown = points[points["beyond"] == marker]
        axes.plot(
            shown["x"], shown["y"], marker=marker, markersize=8, linestyle="", color=style.VERMILION, zorder=4,
            clip_on=False,
        )  # fmt: skip
    axes.margins(x=0.14)
    corner = f"{'upper' if higher else 'lower'} left is better" + (
        "; arrow: beyond the axis" if points["beyond"].ne("").any() else ""
    )
    if len(rest) + len(best) < len(points):
        corner += f"; {len(rest)} of the {len(points) - len(best):,} variants off the front are drawn"
    room = axes.get_position().width * axes.figure.get_figwidth() + 0.8  # type: ignore[union-attr]
    lines = "\n".join(page.wrapped(corner, room, 7.5))
    axes.text(1, 1.035, lines, transform=axes.transAxes, fontsize=7.5, color="#555555", ha="right", va="bottom")
    _names(axes, points, on)


def _at_the_edge(axes: Axes, points: pd.DataFrame) -> pd.DataFrame:
    """Set the y axis. Points far beyond all others go to its edge: `beyond` is their arrow, the label has the value."""
    seen = window(points["y"])
    kept = points["y"] if seen is None else points["y"][points["y"].between(*seen)]
    reach = points.loc[kept.index, "half"].fillna(0)
    low, high = float((kept - reach).min()), float((kept + reach).max())
    room = 0.12 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_ylim(low - room, high + room)
    points = points.assign(beyond="")
    if seen is None:
        return points
    for arrow, far, edge in (("^", points["y"] > seen[1], high + room), ("v", points["y"] < seen[0], low - room)):
        known = zip(points["label"][far], points["y"][far], strict=True)
        points.loc[far, "label"] = [f"{label} ({short(float(y))})" for label, y in known]
        points = points.assign(
            beyond=points["beyond"].mask(far, arrow), half=points["half"].mask(far, 0.0), y=points["y"].mask(far, edge)
        )
    return points


def _names(axes: Axes, points: pd.DataFrame, on: list[int]) -> None:
    """Names beside the points, moved up or down until they do not lie on each other; the front's names go first."""
    height = axes.get_window_extent().height
    axes.autoscale_view()  # or the transform would still be that of an empty panel
    to_axes = axes.transData + axes.transAxes.inverted()
    taken: list[tuple[float, float, float, float]] = []
    room = axes.get_position().width * axes.figure.get_figwidth()  # type: ignore[union-attr]
    places = on + [place for place in range(len(points)) if place not in on] if len(points) <= NAMED else on
    labels = [str(points["label"].iloc[place]) for place in places]
    texts = style.apart(labels, min(34, page.letters(0.6 * room, 7.5)))
    for place, text in zip(places, texts, strict=True):
        row = points.iloc[place]
        x, y = to_axes.transform((row["x"], row["y"]))
        wide, tall = 0.08 * len(text) / room, 11 / height
        box = _free(x, y, wide, tall, taken)
        if box is None:
            continue
        taken.append(box)
        beside = box[0] > x
        axes.annotate(
            text, (row["x"], row["y"]), xytext=(box[0] if beside else box[2], (box[1] + box[3]) / 2),
            textcoords="axes fraction", fontsize=7.5, va="center", ha="left" if beside else "right", zorder=5,
            color=style.INK if place in on else "#666666", fontweight="bold" if place in on else "normal",
        )  # fmt: skip


def _free(
    x: float, y: float, wide: float, tall: float, taken: list[tuple[float, float, float, float]]
) -> tuple[float, float, float, float] | None:
    """The first place around (x, y) where a name hides no other; None when all are taken."""
    for shift in (0.75, -0.75, 0, 1.5, -1.5, 2.25, -2.25):
        for left in (x + 0.018, x - 0.018 - wide):
            box = (left, y + (shift - 0.5) * tall, left + wide, y + (shift + 0.5) * tall)
            if box[0] >= -0.02 and box[2] <= 1.05 and box[3] <= 1 and not any(
                box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3] for other in taken
            ):  # fmt: skip
                return box
    return None
