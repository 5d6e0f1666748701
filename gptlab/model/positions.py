"""Positions: given the token embeddings (B, T, emb_dim), the (T, emb_dim) to add to them, or None to add nothing."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gptlab.model.layers import Embedding
from gptlab.registry import register


@register("position", "learned")
class LearnedPosition(Embedding):
    """One trained vector for each of the context_length positions (GPT-2)."""

    def __init__(self, context_length: int, emb_dim: int) -> None:
        super().__init__(context_length, emb_dim)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.weight[: tokens.shape[1]]


@register("position", "sinusoidal")
class SinusoidalPosition(nn.Module):
    """sin and cos (even and odd features) of t / 10000^(2i/emb_dim): fixed, no parameters (Vaswani et al. 2017)."""

    table: Tensor

    def __init__(self, context_length: int, emb_dim: int, base: float = 10_000.0) -> None:
        super().__init__()
        pairs = (emb_dim + 1) // 2  # an odd emb_dim ends on a sine
        rates = base ** (-2.0 * torch.arange(pairs, dtype=torch.float64) / emb_dim)
        angles = torch.arange(context_length, dtype=torch.float64)[:, None] * rates  # (context_length, pairs)
        table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :emb_dim]
        self.register_buffer("table", table.to(torch.get_default_dtype()), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table[: tokens.shape[1]]


@register("position", "none")
class NoPosition(nn.Module):
    """No position at all: only a causal mask can then tell order (NoPE, Haviv et al. 2022)."""

    def forward(self, tokens: Tensor) -> None:
        return None
