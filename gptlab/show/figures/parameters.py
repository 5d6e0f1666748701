"""Parameters by part of the model: one stacked bar per variant, with the exact total beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gptlab.show.figures import panels, style
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
WIDTH = 10.5
MOST = 30


def parameter_figure(study: Study) -> Figure | None:
    """Horizontal bars, one per variant in table order; None when nothing was counted."""
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
    left = MARGINS["left"] + 0.085 * max(map(len, labels))
    height = MARGINS["top"] + BAR * max(len(labels), 2) + MARGINS["bottom"]
    figure = Figure(figsize=(WIDTH, height))
    inner = (WIDTH - left - MARGINS["right"]) / WIDTH
    axes = figure.add_axes((left / WIDTH, MARGINS["bottom"] / height, inner, BAR * max(len(labels), 2) / height))
    divisor, unit = _unit(counted)
    _bars(axes, groups, divisor)
    _totals(axes, study, counted, divisor)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(max(len(labels), 2) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(unit)
    figure.legend(
        *axes.get_legend_handles_labels(), loc="upper left", ncols=len(groups), fontsize=8, handlelength=1.6,
        columnspacing=1.2, bbox_to_anchor=(0.08 / WIDTH, 1 - 0.62 / height), borderaxespad=0.0,
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


def _bars(axes: Axes, groups: dict[str, list[int]], divisor: float) -> None:
    start: list[float] = []
    for group, counts in groups.items():
        sizes = [count / divisor for count in counts]
        start = start or [0.0] * len(sizes)
        color, hatch = LOOKS.get(group, OTHER)
        axes.barh(
            range(len(sizes)), sizes, left=start, height=0.72, color=color, hatch=hatch, edgecolor="white",
            linewidth=0.8, label=style.plain(group.replace("_", " ")),
        )  # fmt: skip
        start = [before + size for before, size in zip(start, sizes, strict=True)]
    axes.set_xlim(0, 1.03 * max(start))


def _totals(axes: Axes, study: Study, counted: pd.DataFrame, divisor: float) -> None:
    """The exact total and its difference to the baseline; a line where the baseline's bar ends."""
    measured = study.runs[study.runs["parameters"].notna()]
    known = dict(zip(measured["run"], measured["parameters"], strict=True))
    for place, (total, base, own) in enumerate(
        zip(counted["parameters"], counted["baseline"], counted["is_baseline"], strict=True)
    ):
        change = "" if own else percent_change(int(total), known.get(base)).replace("=", "same")
        text = f"{total:,}" + (f"  ({change})" if change else "")
        # In a column of their own: beside its bar, a short one's label would lie on the baseline's line.
        axes.text(1.012, place, text, transform=axes.get_yaxis_transform(), va="center", fontsize=8)
        if own and len(counted) > 1:
            axes.axvline(float(total) / divisor, color=style.INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
