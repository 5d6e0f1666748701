"""Norms: (..., dim) -> (..., dim), statistics over the features of one token, independent of the batch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlab.registry import register


@register("norm", "layernorm")
class LayerNorm(nn.Module):
    """scale * (x - mean) / sqrt(var + eps) + shift, with the biased variance (Ba et al. 2016; GPT-2).

    `bias=False` leaves the shift out, `affine=False` the scale too.
    """

    def __init__(self, dim: int, eps: float = 1e-5, affine: bool = True, bias: bool = True) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps
        self.scale = nn.Parameter(torch.ones(dim)) if affine else None
        self.shift = nn.Parameter(torch.zeros(dim)) if affine and bias else None

    def parameter_roles(self) -> dict[str, str]:
        return {"scale": "gain", "shift": "vector"}

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (self.dim,), self.scale, self.shift, self.eps)


@register("norm", "rmsnorm")
class RMSNorm(nn.Module):
    """scale * x / sqrt(mean(x^2) + eps): LayerNorm without the mean and the shift (Zhang & Sennrich 2019)."""

    def __init__(self, dim: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps
        self.scale = nn.Parameter(torch.ones(dim)) if affine else None

    def parameter_roles(self) -> dict[str, str]:
        return {"scale": "gain"}

    def forward(self, x: Tensor) -> Tensor:
        if self.scale is not None:
            x = x.to(self.scale.dtype)  # bf16 queries and keys: torch has no kernel for two types, and warns
        return F.rms_norm(x, (self.dim,), self.scale, self.eps)


@register("norm", "scalenorm")
class ScaleNorm(nn.Module):
    """gain * x / |x|: RMSNorm with one gain for all features, starting at sqrt(dim) (Nguyen & Salazar 2019)."""

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.tensor(math.sqrt(dim)))

    def parameter_roles(self) -> dict[str, str]:
        return {"gain": "gain"}

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x / x.norm(dim=-1, keepdim=True).clamp(min=self.eps)


@register("norm", "dyt")
class DynamicTanh(nn.Module):
    """scale * tanh(alpha x) + shift: no statistics, the tanh holds large values back (Zhu et al. 2025)."""

    def __init__(self, dim: int, initial_alpha: float = 0.5) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(initial_alpha))
        self.scale = nn.Parameter(torch.ones(dim))
        self.shift = nn.Parameter(torch.zeros(dim))

    def parameter_roles(self) -> dict[str, str]:
        return {"alpha": "gain", "scale": "gain", "shift": "vector"}

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * torch.tanh(self.alpha * x) + self.shift


@register("norm", "identity")
def identity() -> nn.Identity:
    """Returns its input: a norm that does nothing and has no parameters."""
    return nn.Identity()
