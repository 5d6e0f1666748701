"""Attention: (B, T, emb_dim) -> (B, T, emb_dim), the only place where tokens exchange information."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlab.errors import GptlabError
from gptlab.model.across_layers.values import ValueEmbedding, ValueMix, check_mix
from gptlab.model.attention_options import check_heads, check_options
from gptlab.model.contract import Handed
from gptlab.model.decoding import Attendable, KeyValues, Ring
from gptlab.model.layers import Linear
from gptlab.model.norms import RMSNorm
from gptlab.model.positions import AttentionPosition
from gptlab.registry import register


@runtime_checkable
class ShowsLogits(Protocol):
    """An attention whose weights can be looked at."""

    attention_logits: Callable[..., Tensor]  # what its softmax takes, (B, heads, T, S), for the arguments of `forward`


class Attended(NamedTuple):
    """What attention gives beside (B, T, emb_dim): what is to be remembered, and values for later layers."""

    y: Tensor
    state: Attendable | None
    first_values: Handed | None = None  # (B, n_kv_heads, T, head_dim)


@register("attention", "multi_head")
class MultiHeadAttention(nn.Module):
    """softmax(scale * Q K^T) V in n_heads subspaces, then one projection (Vaswani et al. 2017).

    With `causal`, a token attends to itself and to what came before it; `window` lets it see only that many tokens,
    itself included. n_kv_heads < n_heads shares each key and value head among several queries: GQA (Ainslie et al.
    2023), or MQA (Shazeer 2019) with one. A head is emb_dim / n_heads wide, or `head_dim`: then all of them together
    may be wider than the stream (Gemma, Qwen3). `drop_attention` drops attention weights.

    scale     inverse_sqrt 1/sqrt(head_dim); inverse 1/head_dim (muP); learned, one per head, from inverse_sqrt
    multiplier  the scale as a number of its own (Granite; Gemma 2's query_pre_attn_scalar^-1/2)
    qk_norm   rms over each head (Dehghani et al. 2023); rms_full over all heads (OLMo 2); l2 unit vectors and one
              learned scale per head, from sqrt(head_dim) (Henry et al. 2020)
    softcap   logits become softcap * tanh(logits / softcap) (Gemma 2)
    gate      what the heads give is multiplied by sigmoid(x W_gate), before the projection: `headwise` by one number
              for each head and token, `elementwise` by one for each feature (Qiu et al. 2025; Qwen3-Next)
    sinks     one learned logit s for each head takes part in the softmax and stands for no token, so the weights sum
              to 1 - e^s / (e^s + sum_j e^logit_j): a head may look at nothing (gpt-oss 2025). It starts at 0, which
              is Miller's "off by one" (2023)
    value_residual   values are mixed with those of the first layer, in equal parts (`fixed`) or `learned` ones
    value_embedding  a row of a table for each token is added to its values: `gptlab.model.across_layers.values`

    The norms of `qk_norm` are rmsnorms with the options of the slot `norm`.
    """

    joined = False  # queries, keys and values as one product, of the three weights: `gptlab.training.kernels.qkv`

    def __init__(
        self,
        emb_dim: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        causal: bool = True,
        qkv_bias: bool = False,
        attention_bias: bool = True,
        drop_attention: float = 0.0,
        position: AttentionPosition | None = None,
        qk_norm: str = "none",
        softcap: float | None = None,
        window: int | None = None,
        scale: str = "inverse_sqrt",
        implementation: str = "auto",
        gate: str = "none",
        sinks: bool = False,
        multiplier: float | None = None,
        make_part: Callable[..., nn.Module] | None = None,
        head_dim: int | None = None,
        value_residual: str = "none",
        value_embedding: bool = False,
        layer: int | None = None,
        vocab_size: int | None = None,
    ) -> None:
        super().__init__()
        n_kv_heads = n_kv_heads or n_heads
        check_heads(None if head_dim else emb_dim, n_heads, n_kv_heads)
        check_options(qk_norm, softcap, window, scale, implementation, gate, sinks, multiplier)
        check_mix(value_residual)
        head_dim = head_dim or emb_dim // n_heads
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        self.causal, self.window, self.softcap = causal, window, softcap
        self.qkv_bias = qkv_bias
        self.drop_attention = drop_attention
        self.manual = implementation == "manual" or softcap is not None or sinks
        self.scale_rule, self.qk_norm = scale, qk_norm
        self.scale = multiplier or (1 / head_dim if scale == "inverse" else 1 / math.sqrt(head_dim))
        self.W_query = Linear(emb_dim, n_heads * head_dim, bias=qkv_bias)
        self.W_key = Linear(emb_dim, n_kv_heads * head_dim, bias=qkv_bias)
        self.W_value = Linear(emb_dim, n_kv_heads * head_dim, bias=qkv_bias, branch=True)
        self.out_proj = Linear(n_heads * head_dim, emb_dim, bias=attention_bias, branch=True, into_stream=True)
        gates = {"none": 0, "headwise": n_heads, "elementwise": n_heads * head_dim}[gate]
        self.W_gate = Linear(emb_dim, gates, bias=False) if gates else None
        self.sinks = nn.Parameter(torch.zeros(n_heads)) if sinks else None
        if qk_norm.startswith("rms"):
            full = qk_norm == "rms_full"
            norm = (lambda dim: make_part("norm", "rmsnorm", dim=dim)) if make_part else RMSNorm
            self.query_norm = norm(n_heads * head_dim if full else head_dim)
            self.key_norm = norm(n_kv_heads * head_dim if full else head_dim)
        if scale == "learned" or qk_norm == "l2":
            start = math.sqrt(head_dim) if qk_norm == "l2" else self.scale
            self.head_scale = nn.Parameter(torch.full((n_heads, 1, 1), start))
        self.hands_on_values = value_residual != "none"
        self.value_mix = ValueMix(value_residual == "learned") if self.hands_on_values and layer else None
        self.value_embedding: ValueEmbedding | None = None
        if value_embedding:
            assert vocab_size is not None, "a table of values needs vocab_size"
            self.value_embedding = ValueEmbedding(vocab_size, n_kv_heads, head_dim)
        self.position = position  # for positions that act here, inside attention: rope, alibi
        self.register_load_state_dict_pre_hook(_drop_mask)  # type: ignore[no-untyped-call]

    def parameter_roles(self) -> dict[str, str]:
        return {"head_scale": "gain"} if self._learned else {}

    def forward(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        ids: Tensor | None = None,
        first_values: Tensor | None = None,
        state: Attendable | None = None,
    ) -> Tensor | Attended:
        """`positions` (T,), None for 0 to T - 1. With a `state`, tokens also see those that it stands for."""
        at = _places(x) if positions is None else positions
        q, k, v = self.queries_keys_values(x, at)
        v, first_values = self._values(v, ids, first_values)
        if state is None:
            y = self._projected(x, self._attended(q, k, v, at, at, whole=True))
            return y if first_values is None else Attended(y, None, first_values)
        first = state.length == 0
        state = state.extended(k, v)
        if first:
            return Attended(self._projected(x, self._attended(q, k, v, at, at, whole=True)), state, first_values)
        k, v, seen = state.seen()
        return Attended(self._projected(x, self._attended(q, k, v, at, seen, whole=False)), state, first_values)

    def _values(self, v: Tensor, ids: Tensor | None, first: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """(values that are attended to, the first layer's to hand on if layers share them)."""
        if self.value_embedding is not None:
            assert ids is not None, "a table of values is looked up by ids"
            v = self.value_embedding(v, ids)
        if not self.hands_on_values:
            return v, None
        first = v if first is None else first
        return (v if self.value_mix is None else self.value_mix(v, first)), first

    def _projected(self, x: Tensor, y: Tensor) -> Tensor:
        """(B, T, emb_dim), from the stream x and what the heads give, y (B, n_heads, T, head_dim)."""
        y = y.transpose(1, 2)
        if self.W_gate is not None:
            y = y * self.W_gate(x).sigmoid().unflatten(-1, (self.n_heads, -1))  # (B, T, n_heads, head_dim or 1)
        return self.out_proj(y.flatten(2))

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, at: Tensor, seen: Tensor, *, whole: bool) -> Tensor:
        """(B, n_heads, T, head_dim), queries standing `at` and keys at `seen`. `whole`: these are the same."""
        dropout = self.drop_attention if self.training else 0.0
        if self.manual:
            weights = self.logits(q, k, at, seen).softmax(-1)[..., : k.shape[2]]  # without the sink's
            return F.dropout(weights, dropout) @ self._repeated(v)
        behind_all = not whole and q.shape[2] == 1  # one new token, which may look at all that came before
        mask = self._mask(q, at, seen, plain_causal=not whole and not behind_all)
        shared = self.n_kv_heads != self.n_heads
        causal = self.causal and mask is None and whole
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, causal, scale=self._scale, enable_gqa=shared)

    def empty_state(self, batch_size: int, capacity: int) -> Attendable | None:
        """No keys and no values yet. GptlabError without a mask: every token would have to be computed again."""
        if not self.causal:
            raise GptlabError(
                "model.causal=false: tokens look at later ones, so there is no decoding step by step.",
                code="decoding-without-mask", key="model.causal",
            )  # fmt: skip
        window = self.window
        return Ring(window) if window and window < capacity else KeyValues(capacity)

    @staticmethod
    def inner_parts(options: Mapping[str, Any]) -> list[tuple[str, str]]:
        """(slot, name) of what it has `make_part` build, with these options of its own."""
        return [("norm", "rmsnorm")] if str(options.get("qk_norm")).startswith("rms") else []

    def masked_flops(self, tokens: int) -> tuple[int, int]:
        """Of the products that torch executes over one row: those of pairs beyond the window, those masked within it.

        A window is counted at its full width, and so is the context without one; the second number is then the causal
        half, or what a window lacks at the ends of the row.
        """
        reach = tokens if self.window is None else min(tokens, self.window if self.causal else 2 * self.window - 1)
        window = tokens if self.window is None else min(tokens, self.window)
        # With a window of w, tokens 1 to w - 1 see 1 to w - 1 others behind them, themselves included, and the rest w.
        behind = window * (window + 1) // 2 + (tokens - window) * window
        visible = behind if self.causal else 2 * behind - tokens
        pair = 4 * self.W_query.out_features  # one multiply-add for the logit and one for the sum, in every dimension
        return pair * tokens * (tokens - reach), pair * (tokens * reach - visible)

    def queries_keys_values(self, x: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """(B, T, emb_dim) -> q (B, n_heads, T, head_dim), k and v (B, n_kv_heads, T, head_dim), normed and rotated."""
        q, k, v = self._products(x)
        if self.qk_norm == "rms_full":
            q, k = self.query_norm(q), self.key_norm(k)
        q, k, v = _heads(q, self.n_heads), _heads(k, self.n_kv_heads), _heads(v, self.n_kv_heads)
        if self.qk_norm == "rms":
            q, k = self.query_norm(q), self.key_norm(k)
        elif self.qk_norm == "l2":
            q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        if self.position is not None:
            q, k = self.position.rotate(q, k, _places(x) if positions is None else positions)
        return (q * self.head_scale if self._learned else q), k, v

    def _products(self, x: Tensor) -> tuple[Tensor, ...]:
        layers = (self.W_query, self.W_key, self.W_value)
        # A layer that somebody has put in the place of ours may compute something else.
        if not self.joined or any(type(layer) is not Linear for layer in layers):
            return tuple(layer(x) for layer in layers)
        weights: list[Tensor] = [layer.weight for layer in layers]
        biases: list[Tensor] = [layer.bias for layer in layers] if self.qkv_bias else []
        joined = F.linear(x, torch.cat(weights), torch.cat(biases) if biases else None)
        return joined.split([layer.out_features for layer in layers], dim=-1)

    def attention_logits(self, x: Tensor, positions: Tensor | None = None, **others: object) -> Tensor:
        """What the softmax takes for the stream x (B, T, emb_dim): as `logits`. Nothing else is looked at."""
        q, k, _ = self.queries_keys_values(x, positions)
        return self.logits(q, k)

    def logits(self, q: Tensor, k: Tensor, at: Tensor | None = None, seen: Tensor | None = None) -> Tensor:
        """What the softmax takes, (B, n_heads, T, S), computed openly; -inf where a token may not look.

        With sinks (B, n_heads, T, S + 1), the sink last. Queries stand `at` (T,), keys at `seen` (S,); None for 0, 1,
        2, ...
        """
        logits = q @ self._repeated(k).transpose(-1, -2) * self._scale
        if self.softcap is not None:
            logits = self.softcap * torch.tanh(logits / self.softcap)
        at, seen = (_places(x[0]) if known is None else known for x, known in ((q, at), (k, seen)))
        mask = self._mask(q, at, seen, plain_causal=True)
        logits = logits if mask is None else logits + mask
        if self.sinks is None:
            return logits
        sinks = self.sinks.to(logits.dtype)[:, None, None].expand(*logits.shape[:-1], 1)
        return torch.cat((logits, sinks), dim=-1)

    def _mask(self, like: Tensor, at: Tensor, seen: Tensor, plain_causal: bool = False) -> Tensor | None:
        """What is added to the logits, (T, S) or (n_heads, T, S); None for nothing, or where torch's flag will do."""
        bias = None if self.position is None else self.position.bias(at, seen)
        if bias is None and self.window is None and not (self.causal and plain_causal):
            return None
        behind = at[:, None] - seen  # how far the key stands behind the query
        hidden = behind < 0 if self.causal else torch.zeros_like(behind, dtype=torch.bool)
        if self.window is not None:
            hidden = hidden | (behind.abs() >= self.window)
        if bias is None:
            bias = torch.zeros(behind.shape, device=like.device)
        return bias.masked_fill(hidden, -torch.inf).to(like.dtype)  # rounded here, once

    @property
    def _learned(self) -> bool:
        return self.scale_rule == "learned" or self.qk_norm == "l2"

    @property
    def _scale(self) -> float:
        return 1.0 if self._learned else self.scale

    def _repeated(self, x: Tensor) -> Tensor:
        """Each key or value head once for every query head that shares it."""
        return x.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1)

    def extra_repr(self) -> str:
        heads = f"n_heads={self.n_heads}, n_kv_heads={self.n_kv_heads}, scale={self.scale_rule}, qk_norm={self.qk_norm}"
        sight = f"causal={self.causal}, window={self.window}, softcap={self.softcap}, manual={self.manual}"
        return f"{heads}, {sight}, drop_attention={self.drop_attention}"


def _places(x: Tensor) -> Tensor:
    """0 to T - 1, for (B, T, width)."""
    return torch.arange(x.shape[1], device=x.device)


def _heads(x: Tensor, n_heads: int) -> Tensor:
    """(B, T, n_heads * head_dim) -> (B, n_heads, T, head_dim)"""
    return x.view(*x.shape[:-1], n_heads, -1).transpose(1, 2)


def _drop_mask(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """The book keeps its causal mask in the checkpoint; here it is computed, so a reader's file may carry it."""
    state_dict.pop(f"{prefix}mask", None)


@register("attention", "identity")
def identity() -> nn.Identity:
    """Returns its input: no information crosses tokens."""
    return nn.Identity()
