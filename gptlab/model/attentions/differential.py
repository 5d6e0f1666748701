"""Differential attention: (B, T, emb_dim) -> (B, T, emb_dim), one attention map taken from another."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlab.errors import wrong_value
from gptlab.model.attention import MultiHeadAttention
from gptlab.model.positions import AttentionPosition
from gptlab.registry import register


@register("attention", "differential")
class DifferentialAttention(MultiHeadAttention):
    """(softmax(Q1 K1^T) - lambda softmax(Q2 K2^T)) V in pairs of heads, so that noise cancels (Ye et al. 2024).

    Heads h and h + n_heads/2 are a pair; what they give, 2 head_dim wide, is divided by its root mean square and
    multiplied by 1 - lambda_init. One lambda for a layer, from four trained vectors:

        lambda = exp(lq1 . lk1) - exp(lq2 . lk2) + lambda_init,   lambda_init = 0.8 - 0.6 exp(-0.3 layer), layer from 0

    A pair shares the values of both its heads, so it has as many weights as `multi_head`, and the four vectors; the
    products with values are twice as many. Dropout falls on each map by itself.
    """

    def __init__(
        self,
        emb_dim: int,
        n_heads: int,
        layer: int | None = None,
        n_kv_heads: int | None = None,
        causal: bool = True,
        qkv_bias: bool = False,
        attention_bias: bool = True,
        drop_attention: float = 0.0,
        position: AttentionPosition | None = None,
        head_dim: int | None = None,
        window: int | None = None,
        eps: float = 1e-5,
        lambda_std: float = 0.1,
    ) -> None:
        for key, heads in (("model.n_heads", n_heads), ("model.n_kv_heads", n_kv_heads or n_heads)):
            if heads % 2:
                raise wrong_value(
                    key, heads, "attention=differential has its heads in pairs; an even number.", code="heads-in-pairs"
                )
        super().__init__(
            emb_dim, n_heads, n_kv_heads, causal, qkv_bias, attention_bias, drop_attention, position,
            window=window, head_dim=head_dim,
        )  # fmt: skip
        self.eps, self.lambda_std = eps, lambda_std
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * (layer or 0))
        width = self.W_query.out_features // n_heads
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (
            nn.Parameter(torch.zeros(width)) for _ in range(4)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vectors of lambda from N(0, lambda_std)."""
        for vector in (self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2):
            if not vector.is_meta:
                nn.init.normal_(vector, std=self.lambda_std)

    def share(self) -> Tensor:
        """lambda, a scalar."""
        first, second = self.lambda_q1 @ self.lambda_k1, self.lambda_q2 @ self.lambda_k2
        return first.exp() - second.exp() + self.lambda_init

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, at: Tensor, seen: Tensor, *, whole: bool) -> Tensor:
        """(B, n_heads / 2, T, 2 head_dim)."""
        pairs = torch.cat(v.chunk(2, dim=1), dim=-1)  # (B, n_kv_heads / 2, S, 2 head_dim)
        y = super()._attended(q, k, pairs.repeat(1, 2, 1, 1), at, seen, whole=whole)
        first, second = y.chunk(2, dim=1)
        y = first - self.share() * second
        return F.rms_norm(y, y.shape[-1:], eps=self.eps) * (1 - self.lambda_init)

    def masked_flops(self, tokens: int) -> tuple[int, int]:
        beyond, within = super().masked_flops(tokens)
        return beyond * 3 // 2, within * 3 // 2  # the sum over values is twice as wide

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, lambda_init={self.lambda_init:.3g}, eps={self.eps:g}"
