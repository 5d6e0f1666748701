"""Initialisation as data: an init names the distribution of each weight; `gptlab.model.build` draws from it.

An init is called with a module and the name of one of its parameters. It returns a `Draw`, or None for a parameter that
keeps the value its module gave it (the ones and zeros of a norm). S.d. of N(0, .), with d = emb_dim, L = n_layers:

           embeddings      tied table      linear weight        into the stream      linear bias
  torch    embedding_std   tied_std        U(1/sqrt(in))        U(1/sqrt(in))        U(1/sqrt(in))
  gpt2     std             std             std                  std / sqrt(2L)       0
  xavier   embedding_std   embedding_std   sqrt(2/(in+out))     sqrt(2/(in+out))     0
  small    sqrt(2/(5d))    sqrt(2/(5d))    sqrt(2/(5d))         2 / (L sqrt(d))      0
  mup      std             refused         std sqrt(b/d)        that / sqrt(2L)      0

with b = base_width. mup draws the head at head_std * b / d, and scales learning rates too: it is a `ScalesRates`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import nn

from gptlab.errors import ConfigError, wrong_value
from gptlab.model.layers import Embedding, Linear
from gptlab.registry import register


@dataclass(frozen=True)
class Draw:
    """A distribution around zero: `normal` with s.d. `scale`, `uniform` on +-scale, or the `constant` scale."""

    family: str
    scale: float


@runtime_checkable
class ScalesRates(Protocol):
    """An init that also says how fast each weight learns."""

    def rate_scale(self, module: nn.Module, name: str) -> float:
        """Factor on the learning rate of the parameter `name` of `module`."""


@register("init", "torch")
class TorchInit:
    """What nn.Linear and nn.Embedding do by themselves, as in the book; a tied table starts at the head's s.d.

    Tied to an N(0, 1) table, the logits would have an s.d. of sqrt(emb_dim), and the first loss at 124M would be 436
    instead of 11. So the tied table keeps the table's noise at the s.d. of the head that it replaces,
    1/sqrt(3 emb_dim). `tied_std=1.0` shows the fault.
    """

    def __init__(
        self,
        emb_dim: int,
        tie_weights: bool = False,
        embedding_std: float = 1.0,
        tied_std: float | None = None,
    ) -> None:
        if tied_std is not None and not tie_weights:
            raise ConfigError(
                "model.options.init.tied_std: would be ignored, because model.tie_weights=false.",
                code="tied-std-untied",
                key="model.options.init.tied_std",
            )
        self.embedding_std = embedding_std
        self.tied_std = 1 / math.sqrt(3 * emb_dim) if tied_std is None else tied_std

    def __call__(self, module: nn.Module, name: str) -> Draw | None:
        if isinstance(module, nn.Embedding):
            tied = isinstance(module, Embedding) and module.tied
            return Draw("normal", self.tied_std if tied else self.embedding_std)
        if isinstance(module, nn.Linear):
            return Draw("uniform", 1 / math.sqrt(module.in_features))
        return None


class NormalInit:
    """N(0, s) for every matrix, biases 0. Subclasses say s."""

    def embedding(self) -> float:
        """S.d. of token embedding and learned positions."""
        raise AssertionError("a subclass says")

    def linear(self, module: nn.Linear, into_stream: bool) -> float:
        """S.d. of the weight of `module`."""
        raise AssertionError("a subclass says")

    def __call__(self, module: nn.Module, name: str) -> Draw | None:
        if isinstance(module, nn.Embedding):
            return Draw("normal", self.embedding())
        if isinstance(module, nn.Linear):
            into_stream = isinstance(module, Linear) and module.into_stream
            return Draw("constant", 0.0) if name == "bias" else Draw("normal", self.linear(module, into_stream))
        return None


@register("init", "gpt2")
class GPT2Init(NormalInit):
    """N(0, 0.02) everywhere, biases 0, layers that write into the stream divided by sqrt(2 n_layers) (GPT-2)."""

    def __init__(self, n_layers: int, std: float = 0.02, scale_residual: bool = True) -> None:
        self.std = std
        self.stream_std = std / math.sqrt(2 * n_layers) if scale_residual and n_layers else std

    def embedding(self) -> float:
        return self.std

    def linear(self, module: nn.Linear, into_stream: bool) -> float:
        return self.stream_std if into_stream else self.std


@register("init", "xavier")
class XavierInit(NormalInit):
    """N(0, 2/(fan_in + fan_out)) for linear weights, embeddings N(0, embedding_std) (Glorot & Bengio 2010)."""

    def __init__(self, embedding_std: float = 0.02) -> None:
        self.embedding_std = embedding_std

    def embedding(self) -> float:
        return self.embedding_std

    def linear(self, module: nn.Linear, into_stream: bool) -> float:
        return math.sqrt(2 / (module.in_features + module.out_features))


@register("init", "small")
class SmallInit(NormalInit):
    """N(0, 2/(5 emb_dim)) (Nguyen & Salazar 2019), into the stream 2/(n_layers sqrt(emb_dim)) (Wang; GPT-NeoX)."""

    def __init__(self, emb_dim: int, n_layers: int, wang: bool = True) -> None:
        self.std = math.sqrt(2 / (5 * emb_dim))
        self.stream_std = 2 / (n_layers * math.sqrt(emb_dim)) if wang and n_layers else self.std

    def embedding(self) -> float:
        return self.std

    def linear(self, module: nn.Linear, into_stream: bool) -> float:
        return self.stream_std if into_stream else self.std


@register("init", "mup")
class MuPInit(NormalInit):
    """Maximal-update parametrisation for Adam (Yang et al. 2022): what is tuned at base_width holds at any width.

    Use it with options.attention.scale=inverse. `std`, by default 1/sqrt(base_width), is that of hidden weights at
    base_width and of the embeddings; `head_std` that of the head there (0 is often advised, and then nothing but the
    head has a gradient at the first step).
    """

    def __init__(
        self,
        emb_dim: int,
        n_layers: int,
        tie_weights: bool = False,
        base_width: int = 256,
        std: float | None = None,
        head_std: float = 0.02,
    ) -> None:
        if tie_weights:
            raise ConfigError(
                "model.init=mup: wants the head's scale at 1/width and the embedding's at 1; untie them.",
                code="mup-tied",
                key="model.init",
                value="mup",
            )
        if base_width < 1:
            raise wrong_value("model.options.init.base_width", base_width, "must be 1 or more.", code="base-width")
        self.width, self.base_width, self.head_std = emb_dim, base_width, head_std
        self.std = 1 / math.sqrt(base_width) if std is None else std
        self.depth = 1 / math.sqrt(2 * max(n_layers, 1))

    def embedding(self) -> float:
        return self.std

    def linear(self, module: nn.Linear, into_stream: bool) -> float:
        if isinstance(module, Linear) and module.head:
            return self.head_std * self.base_width / self.width
        hidden = self.std * math.sqrt(self.base_width / self.width)
        return hidden * (self.depth if into_stream else 1.0)

    def rate_scale(self, module: nn.Module, name: str) -> float:
        """Factor on Adam's learning rate: base_width / width for matrices that take in the width, else 1."""
        return self.base_width / self.width if isinstance(module, nn.Linear) and name == "weight" else 1.0
