"""The layouts: how the branches of a block meet. Each is a component of the slot `block`, chosen by `model.layout`."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from gptlab.errors import wrong_value
from gptlab.model.block import PLACEMENTS, Block
from gptlab.model.contract import Context, Given
from gptlab.registry import register


@register("block", "serial")
class Serial(Block):
    """x = x + A(x), then x = x + F(x): attention, then the feed-forward layer, each with its own norms."""

    def __init__(
        self,
        emb_dim: int,
        n_layers: int,
        layer: int,
        norm_placement: str,
        drop_shortcut: float,
        norm: Callable[[int], nn.Module],
        skip: nn.Module,
        attention: nn.Module,
        feed_forward: nn.Module,
        shortcut_attention: nn.Module,
        shortcut_feed_forward: nn.Module,
        canon_attention: bool = False,
        canon_feed_forward: bool = False,
    ) -> None:
        if self.beside and not self.one_norm and PLACEMENTS[norm_placement].after:
            raise wrong_value(
                "model.layout",
                "parallel_two_norms",
                f"norm_placement={norm_placement} has one norm behind the sum of both branches. Use layout=parallel.",
                code="two-norms-after",
                norm_placement=norm_placement,
            )
        super().__init__(
            emb_dim, n_layers, layer, norm_placement, drop_shortcut, norm, skip,
            attention, feed_forward, shortcut_attention, shortcut_feed_forward, canon_attention, canon_feed_forward,
        )  # fmt: skip


@register("block", "parallel")
class Parallel(Serial):
    """x + A(N(x)) + F(N(x)), with one norm for both (GPT-J, PaLM)."""

    beside = one_norm = True

    def joined(self, x: Tensor, context: Context, given: Given) -> Tensor:
        attended, transformed = (self._branch(name, x, context, given) for name, _ in self._parts())
        x = self._around("att")[2](self.stream_scale * x, attended)
        x = self._around("ff")[2](x, transformed)
        return self.norm1(x) if self.norm_after else x


@register("block", "parallel_two_norms")
class ParallelTwoNorms(Parallel):
    """x + A(N1(x)) + F(N2(x)): parallel, each branch behind a norm of its own (GPT-NeoX, Black et al. 2022)."""

    one_norm = False


@register("block", "attention_only")
class AttentionOnly(Block):
    """x + A(x): no feed-forward layer."""

    def __init__(
        self,
        emb_dim: int,
        n_layers: int,
        layer: int,
        norm_placement: str,
        drop_shortcut: float,
        norm: Callable[[int], nn.Module],
        skip: nn.Module,
        attention: nn.Module,
        shortcut_attention: nn.Module,
        canon_attention: bool = False,
    ) -> None:
        super().__init__(
            emb_dim, n_layers, layer, norm_placement, drop_shortcut, norm, skip,
            attention=attention, shortcut_attention=shortcut_attention, canon_attention=canon_attention,
        )  # fmt: skip


@register("block", "feed_forward_only")
class FeedForwardOnly(Block):
    """x + F(x): nothing crosses tokens."""

    def __init__(
        self,
        emb_dim: int,
        n_layers: int,
        layer: int,
        norm_placement: str,
        drop_shortcut: float,
        norm: Callable[[int], nn.Module],
        skip: nn.Module,
        feed_forward: nn.Module,
        shortcut_feed_forward: nn.Module,
        canon_feed_forward: bool = False,
    ) -> None:
        super().__init__(
            emb_dim, n_layers, layer, norm_placement, drop_shortcut, norm, skip,
            feed_forward=feed_forward, shortcut_feed_forward=shortcut_feed_forward,
            canon_feed_forward=canon_feed_forward,
        )  # fmt: skip
