"""The forest plot: each variant's difference to the baseline with its interval, and the verdict in words beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gptlab.comparing.advice import too_few
from gptlab.comparing.comparison import (
    BETTER,
    DIFFERENT,
    EQUIVALENT,
    NOT_COMPARABLE,
    TOO_FEW,
    UNCLEAR,
    UNFINISHED,
    WORSE,
    Cell,
    Comparison,
    Row,
)
from gptlab.metrics import metric as declared
from gptlab.show.columns import cell_entries
from gptlab.show.figures import page, style
from gptlab.show.figures.outliers import window
from gptlab.show.figures.panels import shown
from gptlab.show.formats import decimals

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Shape and filling say what the colour says.
LOOKS: dict[str, dict[str, Any]] = {
    BETTER: {"marker": "o", "color": style.BLUE, "markerfacecolor": style.BLUE},
    WORSE: {"marker": "s", "color": style.VERMILION, "markerfacecolor": style.VERMILION},
    DIFFERENT: {"marker": "P", "color": style.PURPLE, "markerfacecolor": style.PURPLE},
    EQUIVALENT: {"marker": "D", "color": style.GREEN, "markerfacecolor": style.GREEN},
    UNCLEAR: {"marker": "o", "color": "#666666", "markerfacecolor": "white"},
    TOO_FEW: {"marker": "^", "color": "#666666", "markerfacecolor": "white", "linestyle": (0, (2, 2))},
    UNFINISHED: {"marker": "v", "color": "#666666", "markerfacecolor": "white", "linestyle": (0, (2, 2))},
    NOT_COMPARABLE: {"marker": "x", "color": "#666666"},
}
LINE, WIDTH, RIGHT, TOP, BOTTOM = 0.29, 10.5, 4.3, 0.8, 0.65  # inches
LEAST = 1.8  # of the axis, with text beside it
LINE_ABOVE, DOWN = 0.68, 0.28  # of a row with its text above the bar, and where the bar is in it (part of a row)
MOST = 40
BELOW = 0.24  # lines: where the dots of the seeds are, under their mean


def forest_figure(comparison: Comparison, metric: str = "", width: float | None = None) -> Figure | None:
    """Differences of `metric` (the primary one) with their intervals; None when no row has one.

    A metric that varies by factors has a logarithmic axis, and 1 is no difference.
    Where `width` (in inches) has no room for text beside the bars, it stands above them.
    """
    from matplotlib.figure import Figure

    metric = metric or comparison.primary_metric
    compared = [row for row in comparison.rows if row.baseline is not None]
    if not any(row.cell(metric).difference is not None for row in compared):
        return None
    kept, cut = shown([row.label for row in compared], MOST)
    rows = compared[: len(kept)]
    said = too_few(comparison).split(". ")[0]
    cells = [row.cell(metric) for row in rows]
    numbers = [_numbers(cell) for cell in cells]
    words = [("" if said and cell.verdict == TOO_FEW else cell.words) + (" *" if cell.marked else "") for cell in cells]
    full, aside = width or WIDTH, RIGHT
    if width:
        aside = 0.45 + page.long(numbers, 8) + page.long(words, 8)
    labels = style.apart([row.label for row in rows], 34)
    left, line = 0.3 + 0.082 * max(map(len, labels)), LINE
    above = full - left - aside < LEAST
    if above:
        labels = style.apart([row.label for row in rows], page.letters(full - 0.6 - page.long(words, 8), 9, bold=True))
        left, aside, line = 0.2, 0.2, LINE_ABOVE
    height = TOP + line * max(len(rows), 2) + BOTTOM
    figure = Figure(figsize=(full, height))
    inner = (left / full, BOTTOM / height, (full - left - aside) / full, line * max(len(rows), 2) / height)
    axes = figure.add_axes(inner)
    ratio = any(row.cell(metric).scale == "ratio" for row in rows)
    ends = _limits(cells, ratio)
    known = {row.label: row for row in comparison.rows}
    dotted = False
    for place, (row, cell) in enumerate(zip(rows, cells, strict=True)):
        where = place + DOWN * above
        _draw(axes, where, cell, ends)
        seen = cell.pairs > 1 and cell.difference is not None and ends[0] <= cell.difference <= ends[1]
        each = _of_seeds(row, known[str(row.baseline)], metric, ratio) if seen else []
        _dots(axes, where + BELOW * (0.5 if above else 1), each, ends)
        dotted |= bool(each)
        texts = _texts_above(labels[place], numbers[place], words[place]) if above else None
        for side, text, look in texts or _texts_beside(numbers[place], words[place], numbers):
            weight = "bold" if cell.bold and text == words[place] else look.pop("weight", "normal")
            axes.annotate(
                text, (side, place), xycoords=axes.get_yaxis_transform(), textcoords="offset points",
                fontweight=weight, annotation_clip=False, **look,
            )  # fmt: skip
    _axes(axes, [] if above else labels, len(rows), ratio, ends)
    unit = "ratio to the baseline" if ratio else f"difference to the baseline ({style.plain(declared(metric).unit)})"
    axes.set_xlabel(f"{style.plain(metric.replace('_', ' '))}: {unit}")
    names = list(dict.fromkeys(str(row.baseline) for row in rows))
    base = f"line: {style.plain(names[0], 30)}" if len(names) == 1 else "line: each row's baseline"
    differences = [cell.difference for cell in cells]
    facts = [style.plain(comparison.title, 40), base, said or "bars: 95% t interval of the paired difference"]
    beyond = any(d is not None and not ends[0] <= d <= ends[1] for d in differences)
    facts += ["arrow: beyond the axis" if beyond else "", "dots: each seed" if dotted else ""]
    facts += ["* seeds were lost, or added after looking" if any(cell.marked for cell in cells) else "", cut]
    style.heading(figure, f"What each change does to {metric.replace('_', ' ')}", style.joined(facts))
    return figure


def _texts_beside(number: str, words: str, numbers: Sequence[str]) -> list[tuple[float, str, dict[str, Any]]]:
    """Right of the axis: number and verdict, in two columns."""
    second = 20 + 72 * page.long(numbers, 8)
    look = {"va": "center", "fontsize": 8}
    return [(1, number, {**look, "xytext": (10, 0)}), (1, words, {**look, "xytext": (second, 0)})]


def _texts_above(label: str, number: str, words: str) -> list[tuple[float, str, dict[str, Any]]]:
    """Above its bar: label and verdict in one line, the number below them."""
    clear = {
        "va": "center",
        "fontsize": 8,
        "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        "zorder": 6,
    }
    return [
        (0, label, {**clear, "fontsize": 9, "xytext": (4, 17), "weight": "bold"}),
        (1, words, {**clear, "xytext": (-2, 17), "ha": "right"}),
        (0, number, {**clear, "xytext": (4, 5), "color": "#444444"}),
    ]


def _draw(axes: Axes, place: float, cell: Cell, ends: tuple[float, float]) -> None:
    look = {"markersize": 6, "linestyle": "-", "linewidth": 1.6, **LOOKS.get(cell.verdict, LOOKS[UNCLEAR])}
    line = {"color": look["color"], "linestyle": look.pop("linestyle"), "linewidth": look.pop("linewidth")}
    outside = cell.difference is not None and not ends[0] <= cell.difference <= ends[1]
    if cell.low is not None and cell.high is not None and not outside:
        low, high = max(cell.low, ends[0]), min(cell.high, ends[1])
        axes.plot([low, high], [place, place], solid_capstyle="butt", zorder=3, **line)
        for end, whole, mark in ((low, cell.low, "<"), (high, cell.high, ">")):
            mark = "|" if end == whole else mark  # an arrow where the interval goes on
            axes.plot(end, place, marker=mark, markersize=5, color=line["color"], zorder=3)
    if cell.difference is not None:
        inside = min(max(cell.difference, ends[0]), ends[1])
        if outside:  # an arrow at the edge; the number stands beside it
            look |= {"marker": ">" if cell.difference > inside else "<", "clip_on": False, "markersize": 8}
        axes.plot(inside, place, zorder=4, linestyle="", **look)


def _dots(axes: Axes, place: float, values: Sequence[float], ends: tuple[float, float]) -> None:
    """Each seed as a dot; a small arrow at the edge where it is beyond the axis."""
    for marker, xs in (
        (".", [value for value in values if ends[0] <= value <= ends[1]]),
        ("<", [ends[0] for value in values if value < ends[0]]),
        (">", [ends[1] for value in values if value > ends[1]]),
    ):
        if xs:
            low = [place] * len(xs)
            axes.plot(xs, low, linestyle="", marker=marker, markersize=3.5, color="#888888", clip_on=False, zorder=2)


def _of_seeds(row: Row, base: Row, metric: str, ratio: bool) -> list[float]:
    """The difference (or ratio) of each seed that both have."""
    own, its = (one.values.get((metric, None), {}) for one in (row, base))
    pairs = [(own[seed], its[seed]) for seed in own if seed in its]
    return [a / b for a, b in pairs if a > 0 and b > 0] if ratio else [a - b for a, b in pairs]


def _numbers(cell: Cell) -> str:
    """`-0.0123 [-0.020, -0.004]`, all with as many digits as the interval's width deserves."""
    places = decimals([cell])
    texts = [cell_entries([cell], name, places)[0].text for name in ("difference", "low", "high")]
    return f"{texts[0]}  [{texts[1]}, {texts[2]}]" if texts[1] else texts[0]


def _limits(cells: list[Cell], ratio: bool) -> tuple[float, float]:
    """Room for every difference and for its interval, unless one is so large that it would hide all others."""
    points = _scaled([cell.difference for cell in cells], ratio)
    # A variant that does next to nothing has an interval all the same, and that is what an axis has to show.
    reaches = (max(map(abs, _scaled([c.difference, c.low, c.high], ratio)), default=0.0) for c in cells)
    if seen := window(points, 0.0, reaches):
        points = [point for point in points if seen[0] <= point <= seen[1]]
    reach = max(map(abs, points), default=0.0)
    near = [cell for cell in cells if set(_scaled([cell.difference], ratio)) <= set(points)]
    ends = _scaled([end for cell in near for end in (cell.low, cell.high)], ratio)
    # Half of the intervals fit in any case; one that is far wider than all differences goes on beyond the axis.
    most = max(4 * reach, sorted(map(abs, ends))[(len(ends) - 1) // 2]) if ends else 4 * reach
    ends = [min(max(end, -most), most) if most else end for end in ends]
    low, high = min([0.0, *points, *ends]), max([0.0, *points, *ends])
    room = 0.06 * (high - low) or (0.1 if ratio else 1.0)
    return (math.exp(low - room), math.exp(high + room)) if ratio else (low - room, high + room)


def _scaled(values: Sequence[float | None], ratio: bool) -> list[float]:
    """Those that have a place on the axis; their logarithms for ratios."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return [math.log(value) for value in finite if value > 0] if ratio else finite


def _axes(axes: Axes, labels: list[str], rows: int, ratio: bool, ends: tuple[float, float]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    axes.axvline(1 if ratio else 0, color=style.INK, linewidth=0.9, zorder=2)
    if ratio:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if ends[1] / ends[0] < 200 else (1,), numticks=7))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"x{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlim(*ends)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(max(rows, 2) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    for place in range(0, rows if labels else 0, 2):
        axes.axhspan(place - 0.5, place + 0.5, color="#f6f6f6", linewidth=0, zorder=0)
