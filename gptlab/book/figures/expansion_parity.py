"""Figure `expansion_parity`: at which expansion factor the feed-forward layer is as large as attention."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gptlab.book.figures import canvas
from gptlab.config import ModelConfig
from gptlab.declare.composer import compose
from gptlab.model import skeleton
from gptlab.probes.parameters import group_sizes
from gptlab.show.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EXPANSIONS = tuple(0.5 + 0.25 * i for i in range(17))


def sizes(model: ModelConfig, hidden: int | None = None) -> tuple[int, int]:
    """(parameters of attention, of the feed-forward layer) of one block, counted; `hidden` overrides the width."""
    expansion = model.expansion if hidden is None else hidden / model.emb_dim
    counted = group_sizes(skeleton(replace(model, n_layers=1, expansion=expansion, layers={})))
    return counted["attention"], counted["feed_forward"]


def parity(model: ModelConfig) -> float:
    """The expansion factor with equal counts: between the two hidden widths whose counts enclose attention's."""
    attention, _ = sizes(model)
    low, high = 1, 16 * model.emb_dim
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if sizes(model, middle)[1] <= attention else (low, middle)
    below, above = sizes(model, low)[1], sizes(model, high)[1]
    return (low + (attention - below) / (above - below)) / model.emb_dim


def figure() -> Figure:
    """Parameters of one block's two layers over the expansion factor; right: a close look at the crossing."""
    model = compose(["model=gpt2_124m", "probes=counting"]).model
    biased = replace(model, qkv_bias=True)
    picture = canvas.blank(
        9.8, 4.5, "At an expansion of 2 the feed-forward layer has caught up with attention",
        f"One block of GPT-2 124M. Exact parity at {parity(model):.4f}; with biases on queries, keys and values at "
        f"{parity(biased):.4f}",
    )  # fmt: skip
    _overview(canvas.panel(picture, 0.75, 1.1, 4.5, 2.8), model)
    _crossing(canvas.panel(picture, 6.35, 1.1, 3.1, 2.8), model, biased)
    return picture


def _overview(axes: Axes, model: ModelConfig) -> None:
    attention, _ = sizes(model)
    counts = [sizes(replace(model, expansion=e))[1] for e in EXPANSIONS]
    axes.plot(EXPANSIONS, [c / 1e6 for c in counts], color=style.ORANGE, linewidth=2, marker="o", markersize=3.5)
    axes.axhline(attention / 1e6, color=style.BLUE, linewidth=2, linestyle=(0, (6, 2)))
    axes.text(4.45, attention / 1e6 - 0.1, f"attention {attention:,}", color=style.BLUE, ha="right", va="top")
    book = sizes(replace(model, expansion=4.0))[1]
    canvas.note(axes, f"GPT-2: 4x, {book:,}\n{book / attention:.3f} times attention", (4, book / 1e6), (1.55, 4.55))
    axes.text(3.32, 3.45, "feed-forward", color=style.INK, rotation=36)
    point = parity(model)
    axes.plot([point], [attention / 1e6], "o", color=style.INK, markersize=6, zorder=5)
    canvas.note(axes, f"parity at {point:.4f}", (point, attention / 1e6), (0.75, 3.2))
    axes.set_ylim(0, 5.7)
    axes.set_xlim(0.4, 4.6)
    axes.set_xlabel("expansion factor (hidden width over model width)")
    axes.set_ylabel("million parameters")


def _crossing(axes: Axes, model: ModelConfig, biased: ModelConfig) -> None:
    """Difference in parameters around the parity, for each integer hidden width."""
    widths = list(range(2 * model.emb_dim - 3, 2 * model.emb_dim + 4))
    for config, color, marker, label in (
        (model, style.INK, "o", "as in GPT-2 124M here"), (biased, style.BLUE, "s", "with qkv_bias=true")
    ):  # fmt: skip
        gaps = [feed_forward - attention for attention, feed_forward in (sizes(config, width) for width in widths)]
        axes.plot(widths, gaps, marker=marker, markersize=4.5, color=color, linewidth=1, label=label,
                  linestyle="-" if config is model else (0, (5, 2)))  # fmt: skip
    axes.axhline(0, color=style.INK, linewidth=0.8)
    attention, at_two = sizes(model, 2 * model.emb_dim)
    canvas.note(
        axes, f"2x: {at_two - attention:+,}", (2 * model.emb_dim, at_two - attention), (widths[0], 3300), va="center"
    )
    axes.set_title("Feed-forward minus attention, near 2x")
    axes.set_xlabel("hidden width (2x is 1,536)")
    axes.set_ylabel("parameters")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.legend(fontsize=8, loc="lower right")
