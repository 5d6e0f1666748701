"""Shortcuts: how a branch joins the residual stream, (x, branch) -> new x, all (B, T, emb_dim)."""

from __future__ import annotations

import math

import torch
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


@register("shortcut", "constant")
@register("shortcut", "scaled")
class Scaled(nn.Module):
    """x + scale * branch, with a constant scale (`scaled` and `constant` are the same)."""

    def __init__(self, scale: float = 0.5) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        return x + self.scale * branch

    def extra_repr(self) -> str:
        return f"scale={self.scale}"


class LearnedScale(nn.Module):
    """x + alpha * branch, with trained alpha, one number or one per feature."""

    def __init__(self, start: float, shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full(shape, start))

    def parameter_roles(self) -> dict[str, str]:
        return {"alpha": "gain"}

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        return x + self.alpha * branch


@register("shortcut", "rezero")
def rezero() -> nn.Module:
    """x + alpha * branch, alpha a trained number that starts at 0 (Bachlechner et al. 2020; without norms there)."""
    return LearnedScale(0.0)


@register("shortcut", "skipinit")
def skipinit(n_layers: int, start: float | None = None) -> nn.Module:
    """x + alpha * branch, alpha a trained number that starts at 1/sqrt(number of branches) (De & Smith 2020)."""
    return LearnedScale(1 / math.sqrt(2 * max(n_layers, 1)) if start is None else start)


@register("shortcut", "layerscale")
def layerscale(emb_dim: int, n_layers: int, start: float | None = None) -> nn.Module:
    """x + alpha * branch, alpha trained for each feature, from 0.1, 1e-5 or 1e-6 by depth (Touvron et al. 2021)."""
    by_depth = 0.1 if n_layers <= 18 else 1e-5 if n_layers <= 24 else 1e-6
    return LearnedScale(by_depth if start is None else start, (emb_dim,))
