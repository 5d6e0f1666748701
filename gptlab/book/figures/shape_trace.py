"""Figure `shape_trace`: the shape and size of every intermediate tensor of GPT-2 124M."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gptlab.book.figures import canvas
from gptlab.declare.composer import compose
from gptlab.probes.shapes import trace
from gptlab.show.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALL, LARGE = (2, 4), (8, 1024)  # (batch, context): the book's example, and a training batch
ROW = 0.235  # inches
STEM = {
    "input": "token ids", "tok_emb": "token embedding", "pos_emb": "position embedding",
    "drop_emb": "their sum, dropout", "final_norm": "final norm", "out_head": "logits",
}  # fmt: skip
INSIDE = {
    "norm1": "norm 1", "att.W_query": "queries", "att.W_key": "keys", "att.W_value": "values", "att": "attention",
    "shortcut_att": "+ shortcut", "norm2": "norm 2", "ff.layers.0": "feed-forward, wide", "ff.layers.1": "GELU",
    "ff.layers.2": "feed-forward, back", "shortcut_ff": "+ shortcut",
}  # fmt: skip


def traces(overrides: tuple[str, ...] = ()) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The trace of the meta-device model at both batch shapes: rows as in shapes.csv."""
    model = compose(["probes=counting", *overrides]).model
    return trace(model, *SMALL), trace(model, *LARGE)


def figure() -> Figure:
    """Left: the whole model, a row per block. Right: inside the first block. Bars: bytes of the large batch, log."""
    small, large = traces()
    whole = _chosen(small, large, {**STEM, **{f"trf_blocks.{i}": f"block {i + 1}" for i in range(12)}})
    inside = _chosen(small, large, {f"trf_blocks.0.{name}": label for name, label in INSIDE.items()})
    height = 1.25 + ROW * len(whole) + 0.2
    logits = whole[-1][2]
    picture = canvas.blank(
        10.6, height, "GPT-2 124M: one shape from the embeddings to the last norm",
        f"From block to block nothing changes shape. Then the logits of {LARGE[0]} x {LARGE[1]} tokens take "
        f"{canvas.bytes_words(logits['bytes'])}, {logits['bytes']:,} bytes (float32; ids are int64)",
    )  # fmt: skip
    _table(picture, 0.15, 5.2, whole, "The model")
    _table(picture, 5.65, 4.85, inside, "Inside block 1")
    return picture


def _chosen(
    small: list[dict[str, Any]], large: list[dict[str, Any]], labels: dict[str, str]
) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(label, row of the small batch, row of the large batch) in the order of the trace."""
    pairs = zip(small, large, strict=True)
    return [(labels[a["module"]], a, b) for a, b in pairs if a["module"] in labels]


def _table(figure: Figure, left: float, width: float, rows: list[Any], title: str) -> None:
    axes = canvas.panel(figure, left, 1.25, width, ROW * len(rows))
    axes.set_xlim(0, width)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.axis("off")
    shapes, bars = 1.5, 2.75
    across = f"{LARGE[0]} x {LARGE[1]}"
    for x, head in ((0, title), (shapes, f"shape at {SMALL[0]} x {SMALL[1]}"), (bars, f"bytes at {across} (log)")):
        axes.text(x, -1.25, head, fontsize=9, fontweight="bold" if x == 0 else "normal", va="center")
    axes.plot([0, width], [-0.72, -0.72], color=style.INK, linewidth=0.8, clip_on=False)
    for place, (label, small, large) in enumerate(rows):
        _row(axes, place, (shapes, bars, width - bars - 0.7), label, small, large)


def _row(axes: Axes, place: int, columns: tuple[float, ...], label: str, small: Any, large: Any) -> None:
    shapes, bars, room = columns
    stands_out = small["output_shape"] != "(2, 4, 768)"
    weight = "bold" if stands_out else "normal"
    axes.text(0, place, label, va="center", fontsize=8.5, fontweight=weight)
    axes.text(shapes, place, small["output_shape"], va="center", fontsize=8.5, fontweight=weight)
    low, high = math.log10(3e4), math.log10(2e9)
    length = room * (math.log10(large["bytes"]) - low) / (high - low)
    color, hatch = (style.ORANGE, "////") if stands_out else (style.SKY, "")
    axes.barh(place, length, left=bars, height=0.68, color=color, hatch=hatch, edgecolor="white", linewidth=0)
    axes.text(bars + length + 0.05, place, canvas.bytes_words(large["bytes"]), va="center", fontsize=8)
