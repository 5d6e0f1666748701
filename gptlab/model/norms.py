"""Norms: (..., dim) -> (..., dim), statistics over the features of one token, independent of the batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlab.registry import register


@register("norm", "layernorm")
class LayerNorm(nn.Module):
    """scale * (x - mean) / sqrt(var + eps) + shift, with the biased variance (Ba et al. 2016; GPT-2)."""

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.ones(dim))
        self.shift = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.scale.shape, self.scale, self.shift, self.eps)


@register("norm", "rmsnorm")
class RMSNorm(nn.Module):
    """scale * x / sqrt(mean(x^2) + eps): LayerNorm without the mean and the shift (Zhang & Sennrich 2019)."""

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.scale.shape, self.scale, self.eps)


@register("norm", "identity")
def identity() -> nn.Identity:
    """Returns its input: a norm that does nothing and has no parameters."""
    return nn.Identity()
