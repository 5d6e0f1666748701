"""The output head: (..., emb_dim) -> logits (..., vocab_size), over the table that tied models share."""

from __future__ import annotations

import torch
from torch import Tensor

from gptlab.errors import wrong_value
from gptlab.model.layers import Linear
from gptlab.registry import register

_OPTIONS = "model.options.head"


class BentHead(Linear):
    """Logits z = scale * (W x + b), and with a softcap softcap * tanh(z / softcap)."""

    def __init__(self, emb_dim: int, vocab_size: int, bias: bool, scale: float, softcap: float | None) -> None:
        super().__init__(emb_dim, vocab_size, bias=bias, head=True)
        self.scale, self.softcap = scale, softcap

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        logits = logits if self.scale == 1.0 else logits * self.scale
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, scale={self.scale:g}, softcap={self.softcap}"


@register("head", "linear")
def linear(
    emb_dim: int, vocab_size: int, bias: bool = False, scale: float = 1.0, softcap: float | None = None
) -> Linear:
    """scale * (W x + b): one product with the table of tokens; softcap c makes it c tanh(. / c).

    bias     one number for each token (GPT-J, Phi)
    scale    a constant factor (Granite's 1 / logits_scaling; Cohere's logit_scale)
    softcap  logits stay within +-softcap (Gemma 2, Gemma Team 2024; first in Bello et al. 2016)
    """
    if not scale > 0:
        raise wrong_value(f"{_OPTIONS}.scale", scale, "must be above 0.", code="head-scale")
    if softcap is not None and not softcap > 0:
        raise wrong_value(f"{_OPTIONS}.softcap", softcap, "must be above 0.", code="softcap-not-positive")
    if scale == 1.0 and softcap is None:
        return Linear(emb_dim, vocab_size, bias=bias, head=True)  # a plain product has the faster loss
    return BentHead(emb_dim, vocab_size, bias, scale, softcap)
