"""Attention: (B, T, emb_dim) -> (B, T, emb_dim), the only place where tokens exchange information."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from gptlab.errors import ConfigError
from gptlab.model.layers import Linear
from gptlab.registry import register


@register("attention", "multi_head")
class MultiHeadAttention(nn.Module):
    """softmax(Q K^T / sqrt(head_dim)) V in n_heads subspaces, then one projection (Vaswani et al. 2017).

    With `causal`, a token attends to itself and to what came before it. `drop_attention` drops attention weights.
    """

    def __init__(
        self, emb_dim: int, n_heads: int, causal: bool = True, qkv_bias: bool = False, drop_attention: float = 0.0
    ) -> None:
        super().__init__()
        if emb_dim % n_heads:
            raise ConfigError(f"n_heads={n_heads}: emb_dim={emb_dim} is not divisible by it.")
        self.n_heads = n_heads
        self.causal = causal
        self.drop_attention = drop_attention
        self.W_query = Linear(emb_dim, emb_dim, bias=qkv_bias)
        self.W_key = Linear(emb_dim, emb_dim, bias=qkv_bias)
        self.W_value = Linear(emb_dim, emb_dim, bias=qkv_bias)
        self.out_proj = Linear(emb_dim, emb_dim, into_stream=True)
        self.register_load_state_dict_pre_hook(_drop_mask)  # type: ignore[no-untyped-call]

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self._heads(project(x)) for project in (self.W_query, self.W_key, self.W_value))
        dropout = self.drop_attention if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, dropout_p=dropout)
        return self.out_proj(y.transpose(1, 2).flatten(2))  # (B, heads, T, head_dim) -> (B, T, emb_dim)

    def _heads(self, x: Tensor) -> Tensor:
        """(B, T, emb_dim) -> (B, heads, T, head_dim)"""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def extra_repr(self) -> str:
        return f"n_heads={self.n_heads}, causal={self.causal}, drop_attention={self.drop_attention}"


def _drop_mask(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """The book keeps its causal mask in the checkpoint; here it is computed, so a reader's file may carry it."""
    state_dict.pop(f"{prefix}mask", None)


@register("attention", "identity")
def identity() -> nn.Identity:
    """Returns its input: no information crosses tokens."""
    return nn.Identity()
