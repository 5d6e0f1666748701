"""Activations: elementwise, any shape to the same shape, no parameters."""

from __future__ import annotations

from torch import Tensor, nn

from gptlab.registry import register


@register("activation", "gelu_tanh")
def gelu_tanh() -> nn.Module:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): GELU as GPT-2 and the book compute it."""
    return nn.GELU(approximate="tanh")


@register("activation", "gelu")
def gelu() -> nn.Module:
    """x Phi(x), exact (Hendrycks & Gimpel 2016); differs from gelu_tanh by at most 0.000473."""
    return nn.GELU()


@register("activation", "relu")
def relu() -> nn.Module:
    """max(0, x): the choice of the 2017 transformer."""
    return nn.ReLU()


@register("activation", "silu")
def silu() -> nn.Module:
    """x sigmoid(x), also called swish."""
    return nn.SiLU()


class SquaredReLU(nn.Module):
    """max(0, x)^2."""

    def forward(self, x: Tensor) -> Tensor:
        return x.relu().square()


@register("activation", "relu2")
def relu2() -> nn.Module:
    """max(0, x)^2 (Primer, So et al. 2021)."""
    return SquaredReLU()


@register("activation", "identity")
def identity() -> nn.Module:
    """Returns its input: the feed-forward layer collapses into one linear map."""
    return nn.Identity()
