"""Study `position_equivariance`: what tells an untrained transformer in which order its tokens come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from gptlab import streams
from gptlab.analyses import Findings
from gptlab.book.figures import canvas
from gptlab.config import Config
from gptlab.model import build
from gptlab.registry import register
from gptlab.show.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROUNDING = 1e-12  # a change below this is float64 noise
BOX = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}  # a label over a line


@register("analysis", "position_equivariance")
def position_equivariance(variants: Sequence[Config], length: int = 6) -> Findings:
    """Permute the tokens: do the logits permute with them? For each variant, in float64."""
    found = Findings()
    for config in variants:
        change = permuted(config, length)
        row = {"variant": config.label, "causal": config.model.causal, "position": config.model.position}
        found.tables.setdefault("equivariance", []).append({**row, "change": change, "equivariant": change < ROUNDING})
        held = "permutation-equivariant" if change < ROUNDING else "order matters"
        found.summary.append((f"{config.label}/change", change, f"largest change of a logit: {held}"))
    found.figures["position_equivariance"] = partial(change_figure, found.tables["equivariance"])
    bare = replace(variants[0], model=replace(variants[0].model, position="none", causal=True))
    for layers in (1, 2):
        change = prefix(replace(bare, model=replace(bare.model, n_layers=layers)), length)
        words = f"causal, no positions, {layers} layer{'s'[: layers - 1]}: change of the last logits, prefix permuted"
        found.summary.append((f"prefix_{layers}", change, words))
    return found


@torch.no_grad()
def permuted(config: Config, length: int) -> float:
    """Largest |logits of the permuted tokens - permuted logits|."""
    model, ids, order = _case(config, length)
    return (model(ids[:, order]) - model(ids)[:, order]).abs().max().item()


@torch.no_grad()
def prefix(config: Config, length: int) -> float:
    """Largest change of the last position's logits when all tokens before it change places."""
    model, ids, order = _case(config, length - 1)
    last = torch.full((1, 1), length % config.model.vocab_size)
    one, two = (model(torch.cat([part, last], 1))[:, -1] for part in (ids, ids[:, order]))
    return (one - two).abs().max().item()


def _case(config: Config, length: int) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """The model in float64, `length` different tokens, and an order that is not theirs."""
    generator = streams.generator(config.seed, "permutation")
    ids = torch.randperm(config.model.vocab_size, generator=generator)[None, :length]
    order = torch.randperm(length, generator=generator)
    if torch.equal(order, torch.arange(length)):
        order = order.roll(1)
    return build(config).double(), ids, order


def change_figure(rows: Sequence[dict[str, Any]]) -> Figure:
    """Change of the logits by variant, on a logarithmic axis: rounding noise is far to the left."""
    picture = canvas.blank(
        9.2, 1.75 + 0.36 * len(rows), "What makes the order of the tokens matter",
        "Permute the tokens and look whether the logits permute with them: untrained model, float64",
    )  # fmt: skip
    axes = canvas.panel(picture, 2.3, 1.0, 5.4, 0.36 * len(rows))
    for place, row in enumerate(rows):
        color = style.ORANGE if row["equivariant"] else style.BLUE
        axes.plot([1e-17, row["change"]], [place, place], color=style.GHOST, linewidth=1.2)
        axes.plot([row["change"]], [place], "D" if row["equivariant"] else "o", color=color, markersize=8)
        words = "order is invisible" if row["equivariant"] else f"{row['change']:.2f}"
        axes.text(max(row["change"], 1e-17) * 3, place, words, va="center", fontsize=9, bbox=BOX)
    axes.axvline(ROUNDING, color=style.INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set_xscale("log")
    axes.set_xlim(1e-17, 1e2)
    axes.set_yticks(range(len(rows)), [style.plain(row["variant"], 30) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("largest change of a logit (dashed: float64 rounding)")
    return picture
