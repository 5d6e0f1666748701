"""Skips: what the stream gets back from further down as it enters a block, (x) -> x, all (B, T, emb_dim).

first_embeddings     x0 ─────┬──────────────┬──────────────┐
                     x ─────(+)── block 0 ─(+)── block 1 ─(+)── block 2 ──>        stream * x + embeddings * x0

halves               x ──┬── block 0 ──┬── block 1 ──(+)── block 2 ──(+)── block 3 ──>
                         │             └──────────────┘               │             as a U-net: last in, first out
                         └────────────────────────────────────────────┘
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from gptlab.errors import GptlabError
from gptlab.model.contract import Handed
from gptlab.registry import register


@register("skip", "none")
def none() -> nn.Identity:
    """The block gets what the block below gives, and nothing else."""
    return nn.Identity()


@register("skip", "first_embeddings")
class FirstEmbeddings(nn.Module):
    """stream * x + embeddings * x0, x0 the stream as it enters the first block (modded-nanogpt 2024; nanochat).

    Two numbers of each layer, trained, from 1 and `start`.
    """

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self.scales = nn.Parameter(torch.tensor([1.0, start]))

    def parameter_roles(self) -> dict[str, str]:
        return {"scales": "gain"}

    def forward(self, x: Tensor, first_embeddings: Tensor) -> Tensor:
        return self.scales[0] * x + self.scales[1] * first_embeddings


class Halved(NamedTuple):
    """The stream, and the states of it that wait for their counterpart, (waiting, B, T, emb_dim)."""

    x: Tensor
    halves: Handed


class Keeps(nn.Module):
    """A block of the lower half: the stream as it enters waits for the block that is as far from the other end."""

    def forward(self, x: Tensor, halves: Tensor | None = None) -> Halved:
        return Halved(x, x[None] if halves is None else torch.cat((halves, x[None])))


class Takes(nn.Module):
    """A block of the upper half: x + scale * what entered the block as far from the other end."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(start))

    def parameter_roles(self) -> dict[str, str]:
        return {"scale": "gain"}

    def forward(self, x: Tensor, halves: Tensor) -> Halved:
        if not len(halves):
            raise GptlabError(
                "skip=halves: a block of the upper half finds nothing that waits for it. Blocks with it come in pairs, "
                "as far from either end.",
                code="halves-unpaired",
            )  # fmt: skip
        return Halved(x + self.scale * halves[-1], halves[:-1])


@register("skip", "halves")
def halves(layer: int, n_layers: int, start: float = 1.0) -> nn.Module:
    """x + scale * what entered block n_layers - 1 - layer, in the upper half (U-net; modded-nanogpt 2024).

    One number of each block of the upper half, trained from `start`. With an odd n_layers the block in the middle
    takes nothing and gives nothing.
    """
    if layer < n_layers // 2:
        return Keeps()
    return Takes(start) if layer >= n_layers - n_layers // 2 else nn.Identity()
