"""Parameters by part of the model: one stacked bar per variant, with the exact total beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gptlab.show.figures import page, panels, style
from gptlab.show.formats import percent_change, si_unit
from gptlab.store.study import Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PREFIX = "parameters/"
# In the order of the data's way through the model; light and dark alternate, so that greyscale separates neighbours.
LOOKS = {
    "token_embedding": (style.BLUE, ""),
    "position": (style.YELLOW, ""),
    "attention": (style.SKY, "////"),
    "feed_forward": (style.ORANGE, "...."),
    "norm": (style.INK, ""),
    "shortcut": (style.PURPLE, "xxxx"),
    "head": (style.GREEN, "\\\\\\\\"),
    "linear": (style.SKY, "////"),
}
OTHER = (style.VERMILION, "++++")
BAR, MARGINS = 0.3, {"left": 0.3, "right": 2.1, "top": 1.02, "bottom": 0.6}  # inches
WIDTH, LEAST = 10.5, 1.8
CLEAR = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}  # behind text that a line may cross
BAR_ABOVE = 0.46  # of a row with its text above the bar
MOST = 30


def parameter_figure(study: Study, asked: float | None = None) -> Figure | None:
    """Horizontal bars, one per variant in table order; None when nothing was counted.

    Where `asked` (the width in inches) has no room for text beside the bars, it stands above them.
    """
    from matplotlib.figure import Figure

    if "parameters" not in study.runs:
        return None
    counted = study.runs[study.runs["parameters"].notna()].drop_duplicates("label")
    labels, cut = panels.shown(list(counted["label"]), MOST)
    counted = counted.head(len(labels))
    groups = _sizes(counted)
    if not groups:
        return None
    labels = style.apart(list(counted["label"]), 34)
    width, totals = asked or WIDTH, _totals(study, counted)
    left, bar = MARGINS["left"] + 0.085 * max(map(len, labels)), BAR
    right = max(MARGINS["right"], 0.3 + page.long(totals, 8))
    above = width - left - right < LEAST
    if above:
        room = page.letters(width - 0.5 - page.long(totals, 8), 8, bold=True)
        labels = style.apart(list(counted["label"]), room)
        left, right, bar = 0.2, 0.2, BAR_ABOVE
    parts = [group.replace("_", " ") for group in groups]
    columns, lines = page.legend_columns(parts, width - 0.16, 8, 0.45)
    top = MARGINS["top"] + page.ROW * (lines - 1)
    height = top + bar * max(len(labels), 2) + MARGINS["bottom"]
    figure = Figure(figsize=(width, height))
    inner = (width - left - right) / width
    axes = figure.add_axes((left / width, MARGINS["bottom"] / height, inner, bar * max(len(labels), 2) / height))
    divisor, unit = _unit(counted)
    _bars(axes, groups, divisor, above)
    _mark_baselines(axes, counted, divisor)
    _beside(axes, totals, above)
    for place, text in enumerate(labels if above else ()):
        axes.annotate(
            text, (0, place), (2, 8), axes.get_yaxis_transform(), "offset points", fontsize=8, va="center",
            fontweight="bold", annotation_clip=False, bbox=CLEAR,
        )  # fmt: skip
    axes.set_yticks([] if above else range(len(labels)), [] if above else labels)
    axes.set_ylim(max(len(labels), 2) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(unit)
    figure.legend(
        *axes.get_legend_handles_labels(), loc="upper left", ncols=columns, fontsize=8, handlelength=1.6,
        columnspacing=1.2, bbox_to_anchor=(0.08 / width, 1 - 0.62 / height), borderaxespad=0.0, labelspacing=0.35,
    )  # fmt: skip
    style.heading(figure, "Parameters by part of the model", style.joined([style.plain(study.plan.study, 80), cut]))
    return figure


def _sizes(counted: pd.DataFrame) -> dict[str, list[int]]:
    """Part -> parameters of each variant; parts that nobody has are left out, known ones come in the order of LOOKS."""
    sizes: dict[str, list[int]] = {}
    for column in (str(name) for name in counted.columns):
        if column.startswith(PREFIX):
            name = column.removeprefix(PREFIX).replace("final_norm", "norm")  # too thin to tell from the other norms
            before = sizes.get(name, [0] * len(counted))
            sizes[name] = [old + int(new) for old, new in zip(before, counted[column].fillna(0), strict=True)]
    order = list(LOOKS)
    present = [name for name, values in sizes.items() if any(values)]
    return {name: sizes[name] for name in sorted(present, key=lambda n: order.index(n) if n in LOOKS else len(order))}


def _unit(counted: pd.DataFrame) -> tuple[float, str]:
    divisor, _ = si_unit(float(value) for value in counted["parameters"])
    words = {1: "parameters", 1e3: "thousand parameters", 1e6: "million parameters", 1e9: "billion parameters"}
    return divisor, words.get(divisor, "trillion parameters" if divisor == 1e12 else f"{divisor:.0e} parameters")


def _bars(axes: Axes, groups: dict[str, list[int]], divisor: float, above: bool) -> None:
    start: list[float] = []
    for group, counts in groups.items():
        sizes = [count / divisor for count in counts]
        start = start or [0.0] * len(sizes)
        color, hatch = LOOKS.get(group, OTHER)
        places = [place + 0.18 * above for place in range(len(sizes))]
        axes.barh(
            places, sizes, left=start, height=0.45 if above else 0.72, color=color, hatch=hatch, edgecolor="white",
            linewidth=0.8, label=style.plain(group.replace("_", " ")),
        )  # fmt: skip
        start = [before + size for before, size in zip(start, sizes, strict=True)]
    axes.set_xlim(0, 1.03 * max(start))


def _totals(study: Study, counted: pd.DataFrame) -> list[str]:
    """The exact total of each variant and its difference to the baseline."""
    measured = study.runs[study.runs["parameters"].notna()]
    known = dict(zip(measured["run"], measured["parameters"], strict=True))
    texts = []
    for total, base, own in zip(counted["parameters"], counted["baseline"], counted["is_baseline"], strict=True):
        change = "" if own else percent_change(int(total), known.get(base)).replace("=", "same")
        texts.append(f"{total:,}" + (f"  ({change})" if change else ""))
    return texts


def _beside(axes: Axes, texts: Sequence[str], above: bool) -> None:
    """In a column of their own: beside its bar, a short one's label would lie on the baseline's line."""
    where, offset, side = (1, (0, 8), "right") if above else (1.012, (0, 0), "left")
    for place, text in enumerate(texts):
        axes.annotate(
            text, (where, place), offset, axes.get_yaxis_transform(), "offset points", va="center", fontsize=8, ha=side,
            annotation_clip=False, bbox=CLEAR,
        )  # fmt: skip


def _mark_baselines(axes: Axes, counted: pd.DataFrame, divisor: float) -> None:
    """A line where a baseline's bar ends."""
    for total, own in zip(counted["parameters"], counted["is_baseline"], strict=True):
        if own and len(counted) > 1:
            axes.axvline(float(total) / divisor, color=style.INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
