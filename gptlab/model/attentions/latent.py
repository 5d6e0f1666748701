"""Multi-head latent attention: (B, T, emb_dim) -> (B, T, emb_dim), all heads' keys and values from one small vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gptlab.errors import wrong_value
from gptlab.model.attention import Attended, MultiHeadAttention
from gptlab.model.decoding import Attendable
from gptlab.model.layers import Linear
from gptlab.model.norms import RMSNorm
from gptlab.model.positions import AttentionPosition, RotaryPosition
from gptlab.registry import register

_OPTIONS = "model.options.attention"


@register("attention", "latent")
class LatentAttention(MultiHeadAttention):
    """Keys and values of all heads from one latent vector of each token, which is all that is remembered (DeepSeek-V2).

        x ──┬── W_latent ──┬── c (kv_latent) ── norm ──┬── W_key ──── k (head_dim each head) ──┐
            │              │                           └── W_value ── v (value_dim each head)  ├── softmax(q k) v
            │              └── r (rope_dim, one for all heads) ── rope ────────────────────────┤
            └── W_query_down ── norm ── W_query ── q (head_dim + rope_dim each head) ── rope ──┘

    A logit is scale * (q_plain . k + q_turned . r), scale = 1 / sqrt(head_dim + rope_dim) or `multiplier`: rotation
    acts on the rope_dim features alone, so that c needs none. Without position=rope nothing turns. kv_latent is
    4 head_dim unless said, rope_dim half a head, value_dim a head. query_latent is the width between W_query_down and
    W_query; None: W_query takes the stream itself (DeepSeek-V2-Lite). The norms are rmsnorms with the
    options of the slot `norm` (Liu et al. 2024; DeepSeek-V3).

    The decoding state holds c and r: kv_latent + rope_dim numbers a token, instead of 2 n_heads head_dim. Keys and
    values are made from them anew at each step.
    """

    def __init__(
        self,
        emb_dim: int,
        n_heads: int,
        causal: bool = True,
        qkv_bias: bool = False,
        attention_bias: bool = True,
        drop_attention: float = 0.0,
        position: AttentionPosition | None = None,
        head_dim: int | None = None,
        make_part: Callable[..., nn.Module] | None = None,
        kv_latent: int | None = None,
        query_latent: int | None = None,
        rope_dim: int | None = None,
        value_dim: int | None = None,
        window: int | None = None,
        multiplier: float | None = None,
    ) -> None:
        plain = head_dim or emb_dim // n_heads
        widths = {
            "kv_latent": 4 * plain if kv_latent is None else kv_latent,
            "rope_dim": 2 * (plain // 4) if rope_dim is None else rope_dim,
            "value_dim": plain if value_dim is None else value_dim,
        }
        _check_widths(widths | ({} if query_latent is None else {"query_latent": query_latent}))
        latent, turned, values = widths.values()
        rope = isinstance(position, RotaryPosition)
        super().__init__(
            emb_dim, n_heads, None, causal, qkv_bias, attention_bias, drop_attention, None if rope else position,
            window=window, multiplier=multiplier, head_dim=plain + turned,
        )  # fmt: skip
        self.turning = position if rope else None
        if rope and make_part is not None:
            made = make_part("position", head_dim=turned)
            assert isinstance(made, RotaryPosition)
            self.turning = made
        self.plain, self.turned, self.value_dim = plain, turned, values
        norm = (lambda dim: make_part("norm", "rmsnorm", dim=dim)) if make_part else RMSNorm
        self.W_query_down = None if query_latent is None else Linear(emb_dim, query_latent, bias=qkv_bias)
        self.query_norm = nn.Identity() if query_latent is None else norm(query_latent)
        bias = qkv_bias and query_latent is None
        self.W_query = Linear(query_latent or emb_dim, n_heads * (plain + turned), bias=bias)
        self.W_latent = Linear(emb_dim, latent + turned, bias=qkv_bias)
        self.latent_norm = norm(latent)
        self.W_key = Linear(latent, n_heads * plain, bias=False)
        self.W_value = Linear(latent, n_heads * values, bias=False, branch=True)
        self.out_proj = Linear(n_heads * values, emb_dim, bias=attention_bias, branch=True, into_stream=True)

    @staticmethod
    def inner_parts(options: Mapping[str, Any]) -> list[tuple[str, str]]:
        return [("norm", "rmsnorm")]

    def forward(  # type: ignore[override]  # no other layer's values
        self, x: Tensor, positions: Tensor | None = None, state: Attendable | None = None
    ) -> Tensor | Attended:
        """`positions` (T,), None for 0 to T - 1. With a `state`, tokens also see those that it stands for."""
        at = torch.arange(x.shape[1], device=x.device) if positions is None else positions
        q, (shared, latents), seen = self._queries(x, at), self._remembered(x, at), at
        whole = state is None or state.length == 0
        if state is not None:
            state = state.extended(shared, latents)
            if not whole:
                shared, latents, seen = state.seen()
        y = self._projected(x, self._attended(q, *self._keys_values(shared, latents), at, seen, whole=whole))
        return y if state is None else Attended(y, state)

    def queries_keys_values(self, x: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """(B, T, emb_dim) -> q and k (B, n_heads, T, head_dim + rope_dim), v (B, n_heads, T, value_dim)."""
        at = torch.arange(x.shape[1], device=x.device) if positions is None else positions
        return self._queries(x, at), *self._keys_values(*self._remembered(x, at))

    def _queries(self, x: Tensor, at: Tensor) -> Tensor:
        """(B, n_heads, T, head_dim + rope_dim)"""
        down = x if self.W_query_down is None else self.query_norm(self.W_query_down(x))
        q = self.W_query(down).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        return torch.cat((q[..., : self.plain], self._turn(q[..., self.plain :], at)), dim=-1)

    def _remembered(self, x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """The turned part of all keys (B, 1, T, rope_dim), and the latents (B, 1, T, kv_latent)."""
        latents, shared = self.W_latent(x)[:, None].split((self.W_key.in_features, self.turned), dim=-1)
        return self._turn(shared, at), self.latent_norm(latents)

    def _keys_values(self, shared: Tensor, latents: Tensor) -> tuple[Tensor, Tensor]:
        k, v = (
            part(latents[:, 0]).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in (self.W_key, self.W_value)
        )
        return torch.cat((k, shared.expand(-1, self.n_heads, -1, -1)), dim=-1), v

    def _turn(self, part: Tensor, at: Tensor) -> Tensor:
        return part if self.turning is None else self.turning.rotate(part, part[:, :1], at)[0]

    def masked_flops(self, tokens: int) -> tuple[int, int]:
        """As of one head width for logits and sums: both are linear in it."""
        pair = 2 * self.n_heads * (self.plain + self.turned + self.value_dim)
        beyond, rest = super().masked_flops(tokens)
        full = 4 * self.W_query.out_features
        return beyond * pair // full, rest * pair // full


def _check_widths(widths: Mapping[str, int]) -> None:
    for name, width in widths.items():
        if width < 1 or name == "rope_dim" and width % 2:
            even = "an even number, " if name == "rope_dim" else ""
            raise wrong_value(f"{_OPTIONS}.{name}", width, f"must be {even}1 or more.", code="latent-width")
