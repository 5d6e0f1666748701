"""The output head: (..., emb_dim) -> logits (..., vocab_size), over the table that tied models share."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from gptlab.errors import wrong_value
from gptlab.model.layers import Linear
from gptlab.registry import register

_OPTIONS = "model.options.head"


@runtime_checkable
class PenalisesLogits(Protocol):
    """A head for which training adds `z_loss` * mean over tokens of (ln sum exp(logits))^2 to its loss."""

    z_loss: float


class WatchedHead(Linear):
    """Logits W x + b, with a weight for the z-loss that training adds."""

    def __init__(self, emb_dim: int, vocab_size: int, bias: bool, z_loss: float) -> None:
        super().__init__(emb_dim, vocab_size, bias=bias, head=True)
        self.z_loss = z_loss

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, z_loss={self.z_loss:g}"


class BentHead(WatchedHead):
    """Logits z = scale * (W x + b), and with a softcap softcap * tanh(z / softcap)."""

    def __init__(
        self, emb_dim: int, vocab_size: int, bias: bool, scale: float, softcap: float | None, z_loss: float = 0.0
    ) -> None:
        super().__init__(emb_dim, vocab_size, bias, z_loss)
        self.scale, self.softcap = scale, softcap

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        logits = logits if self.scale == 1.0 else logits * self.scale
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, scale={self.scale:g}, softcap={self.softcap}"


@register("head", "linear")
def linear(
    emb_dim: int,
    vocab_size: int,
    bias: bool = False,
    scale: float = 1.0,
    softcap: float | None = None,
    z_loss: float = 0.0,
) -> Linear:
    """scale * (W x + b): one product with the table of tokens; softcap c makes it c tanh(. / c).

    bias     one number for each token (GPT-J, Phi)
    scale    a constant factor (Granite's 1 / logits_scaling; Cohere's logit_scale)
    softcap  logits stay within +-softcap (Gemma 2, Gemma Team 2024; first in Bello et al. 2016)
    z_loss   in training, this times the mean of (ln sum exp(logits))^2 is added to the loss: it keeps the logits from
             drifting together, which the softmax does not see (PaLM, Chowdhery et al. 2022: 1e-4)
    """
    if not scale > 0:
        raise wrong_value(f"{_OPTIONS}.scale", scale, "must be above 0.", code="head-scale")
    if softcap is not None and not softcap > 0:
        raise wrong_value(f"{_OPTIONS}.softcap", softcap, "must be above 0.", code="softcap-not-positive")
    if not z_loss >= 0:
        raise wrong_value(f"{_OPTIONS}.z_loss", z_loss, "must be 0 or more.", code="z-loss-negative")
    if scale != 1.0 or softcap is not None:
        return BentHead(emb_dim, vocab_size, bias, scale, softcap, z_loss)
    if z_loss:
        return WatchedHead(emb_dim, vocab_size, bias, z_loss)
    return Linear(emb_dim, vocab_size, bias=bias, head=True)  # a plain product has the faster loss
