"""Initialisation as data: an init names the distribution of each weight; `gptlab.model.build` draws from it.

An init is called with a module and the name of one of its parameters. It returns a `Draw`, or None for a parameter that
keeps the value its module gave it (the ones and zeros of a norm).

                        torch                                   gpt2
  token embedding       N(0, embedding_std)                     N(0, std)
    tied to the head    N(0, tied_std), 1/sqrt(3 emb_dim)       N(0, std)
  learned positions     N(0, embedding_std)                     N(0, std)
  linear weight         U(+-1/sqrt(fan_in))                     N(0, std), into the stream: std / sqrt(2 n_layers)
  linear bias           U(+-1/sqrt(fan_in))                     0
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from gptlab.model.layers import Embedding, Linear
from gptlab.registry import register


@dataclass(frozen=True)
class Draw:
    """A distribution around zero: `normal` with s.d. `scale`, `uniform` on +-scale, or the `constant` scale."""

    family: str
    scale: float


@register("init", "torch")
class TorchInit:
    """What nn.Linear and nn.Embedding do by themselves, as in the book; a tied table starts at the head's s.d.

    Tied to an N(0, 1) table, the logits would have an s.d. of sqrt(emb_dim), and the first loss at 124M would be 436
    instead of 11. So the tied table keeps the table's noise at the s.d. of the head that it replaces,
    1/sqrt(3 emb_dim). `tied_std=1.0` shows the fault.
    """

    def __init__(self, emb_dim: int, embedding_std: float = 1.0, tied_std: float | None = None) -> None:
        self.embedding_std = embedding_std
        self.tied_std = 1 / math.sqrt(3 * emb_dim) if tied_std is None else tied_std

    def __call__(self, module: nn.Module, name: str) -> Draw | None:
        if isinstance(module, nn.Embedding):
            tied = isinstance(module, Embedding) and module.tied
            return Draw("normal", self.tied_std if tied else self.embedding_std)
        if isinstance(module, nn.Linear):
            return Draw("uniform", 1 / math.sqrt(module.in_features))
        return None


@register("init", "gpt2")
class GPT2Init:
    """N(0, 0.02) everywhere, biases 0, layers that write into the stream divided by sqrt(2 n_layers) (GPT-2)."""

    def __init__(self, n_layers: int, std: float = 0.02, scale_residual: bool = True) -> None:
        self.std = std
        self.stream_std = std / math.sqrt(2 * n_layers) if scale_residual and n_layers else std

    def __call__(self, module: nn.Module, name: str) -> Draw | None:
        if isinstance(module, nn.Embedding):
            return Draw("normal", self.std)
        if isinstance(module, nn.Linear):
            into_stream = isinstance(module, Linear) and module.into_stream
            return (
                Draw("constant", 0.0)
                if name == "bias"
                else Draw("normal", self.stream_std if into_stream else self.std)
            )
        return None
