"""Feed-forward layers: (B, T, emb_dim) -> (B, T, emb_dim), the same for each token, nothing crosses tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import torch.nn.functional as F
from torch import Tensor, nn

from gptlab.model.activations import SquaredReLU
from gptlab.model.layers import Linear
from gptlab.registry import register


@runtime_checkable
class ShowsNonlinearities(Protocol):
    """A feed-forward layer that says where its nonlinearities are."""

    def nonlinearities(self) -> Iterable[nn.Module]:
        """The modules, each called with the numbers that it bends, (..., units)."""


def hidden_width(
    emb_dim: int, expansion: float, hidden_dim: int | None = None, hidden_multiple: int | None = None
) -> int:
    """Width of the hidden layer: `hidden_dim`, or expansion * emb_dim to the nearest integer (a half goes up).

    `hidden_multiple` takes that up to its next multiple, as in Llama (Touvron et al. 2023).
    """
    if hidden_dim is not None:
        return hidden_dim
    width = max(1, int(expansion * emb_dim + 0.5))
    return -(-width // hidden_multiple) * hidden_multiple if hidden_multiple else width


@register("feed_forward", "mlp")
class MLP(nn.Module):
    """W2 act(W1 x + b1) + b2, with a hidden width of expansion * emb_dim, or `hidden_dim`: `hidden_width`."""

    def __init__(
        self,
        emb_dim: int,
        activation: nn.Module,
        expansion: float = 4.0,
        feed_forward_bias: bool = True,
        drop_feed_forward: float = 0.0,
        hidden_dim: int | None = None,
        hidden_multiple: int | None = None,
    ) -> None:
        super().__init__()
        width = hidden_width(emb_dim, expansion, hidden_dim, hidden_multiple)
        self.layers = nn.Sequential(
            Linear(emb_dim, width, bias=feed_forward_bias, branch=True),
            activation,
            Linear(width, emb_dim, bias=feed_forward_bias, branch=True, into_stream=True),
        )
        self.drop = drop_feed_forward

    def forward(self, x: Tensor) -> Tensor:
        first, activation, last = self.layers
        return last(F.dropout(activation(first(x)), self.drop, self.training))

    def nonlinearities(self) -> list[nn.Module]:
        return [self.layers[1]]

    def extra_repr(self) -> str:
        return f"drop={self.drop}"


class Gated(nn.Module):
    """W2 (act(W1 x) * V x): one projection opens and closes the other (Shazeer 2020).

    Three matrices instead of two: at expansion 8/3 it has the weights of an MLP at 4.
    """

    def __init__(self, activation: nn.Module, emb_dim: int, width: int, bias: bool, dropout: float) -> None:
        super().__init__()
        self.gate = Linear(emb_dim, width, bias=bias, branch=True)
        self.value = Linear(emb_dim, width, bias=bias, branch=True)
        self.out = Linear(width, emb_dim, bias=bias, branch=True, into_stream=True)
        self.activation = activation
        self.drop = dropout

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.dropout(self.activation(self.gate(x)) * self.value(x), self.drop, self.training))

    def nonlinearities(self) -> list[nn.Module]:
        return [self.activation]

    def extra_repr(self) -> str:
        return f"drop={self.drop}"


@register("feed_forward", "glu")
def glu(
    emb_dim: int,
    expansion: float,
    feed_forward_bias: bool,
    drop_feed_forward: float,
    hidden_dim: int | None = None,
    hidden_multiple: int | None = None,
) -> nn.Module:
    """W2 (sigmoid(W1 x) * V x) (Dauphin et al. 2016)."""
    width = hidden_width(emb_dim, expansion, hidden_dim, hidden_multiple)
    return Gated(nn.Sigmoid(), emb_dim, width, feed_forward_bias, drop_feed_forward)


@register("feed_forward", "geglu")
def geglu(
    emb_dim: int,
    expansion: float,
    feed_forward_bias: bool,
    drop_feed_forward: float,
    hidden_dim: int | None = None,
    hidden_multiple: int | None = None,
) -> nn.Module:
    """W2 (GELU(W1 x) * V x), with the exact GELU (Shazeer 2020)."""
    width = hidden_width(emb_dim, expansion, hidden_dim, hidden_multiple)
    return Gated(nn.GELU(), emb_dim, width, feed_forward_bias, drop_feed_forward)


@register("feed_forward", "swiglu")
def swiglu(
    emb_dim: int,
    expansion: float,
    feed_forward_bias: bool,
    drop_feed_forward: float,
    hidden_dim: int | None = None,
    hidden_multiple: int | None = None,
) -> nn.Module:
    """W2 (SiLU(W1 x) * V x) (Shazeer 2020; PaLM, Llama)."""
    width = hidden_width(emb_dim, expansion, hidden_dim, hidden_multiple)
    return Gated(nn.SiLU(), emb_dim, width, feed_forward_bias, drop_feed_forward)


@register("feed_forward", "reglu")
def reglu(
    emb_dim: int,
    expansion: float,
    feed_forward_bias: bool,
    drop_feed_forward: float,
    hidden_dim: int | None = None,
    hidden_multiple: int | None = None,
) -> nn.Module:
    """W2 (ReLU(W1 x) * V x) (Shazeer 2020)."""
    width = hidden_width(emb_dim, expansion, hidden_dim, hidden_multiple)
    return Gated(nn.ReLU(), emb_dim, width, feed_forward_bias, drop_feed_forward)


@register("feed_forward", "geglu_tanh")
def geglu_tanh(
    emb_dim: int,
    expansion: float,
    feed_forward_bias: bool,
    drop_feed_forward: float,
    hidden_dim: int | None = None,
    hidden_multiple: int | None = None,
) -> nn.Module:
    """W2 (GELU(W1 x) * V x), with the GELU of GPT-2, by a tanh (Gemma)."""
    width = hidden_width(emb_dim, expansion, hidden_dim, hidden_multiple)
    return Gated(nn.GELU(approximate="tanh"), emb_dim, width, feed_forward_bias, drop_feed_forward)


@register("feed_forward", "relu2_glu")
def relu2_glu(
    emb_dim: int,
    expansion: float,
    feed_forward_bias: bool,
    drop_feed_forward: float,
    hidden_dim: int | None = None,
    hidden_multiple: int | None = None,
) -> nn.Module:
    """W2 (ReLU(W1 x)^2 * V x): the square of Primer (So et al. 2021) as a gate (Zhang et al. 2024)."""
    width = hidden_width(emb_dim, expansion, hidden_dim, hidden_multiple)
    return Gated(SquaredReLU(), emb_dim, width, feed_forward_bias, drop_feed_forward)


@register("feed_forward", "bilinear")
def bilinear(
    emb_dim: int,
    expansion: float,
    feed_forward_bias: bool,
    drop_feed_forward: float,
    hidden_dim: int | None = None,
    hidden_multiple: int | None = None,
) -> nn.Module:
    """W2 (W1 x * V x): a gate without a nonlinearity (Mnih & Hinton 2007; Shazeer 2020)."""
    width = hidden_width(emb_dim, expansion, hidden_dim, hidden_multiple)
    return Gated(nn.Identity(), emb_dim, width, feed_forward_bias, drop_feed_forward)


@register("feed_forward", "identity")
def identity() -> nn.Identity:
    """Returns its input."""
    return nn.Identity()
