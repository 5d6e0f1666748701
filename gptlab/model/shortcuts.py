"""Shortcuts: how a branch joins the residual stream, (x, branch) -> new x, all (B, T, emb_dim)."""

from __future__ import annotations

from torch import Tensor, nn

from gptlab.registry import register


@register("shortcut", "add")
class Add(nn.Module):
    """x + branch (He et al. 2015)."""

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        return x + branch


@register("shortcut", "none")
class NoShortcut(nn.Module):
    """branch alone: the stream is replaced, not added to."""

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        return branch


@register("shortcut", "scaled")
class Scaled(nn.Module):
    """x + scale * branch, with a constant scale."""

    def __init__(self, scale: float = 0.5) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        return x + self.scale * branch

    def extra_repr(self) -> str:
        return f"scale={self.scale}"
