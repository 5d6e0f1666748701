"""Positions: given the token embeddings (B, T, emb_dim), the (T, emb_dim) to add to them, or None to add nothing.

A position that acts inside attention is an `AttentionPosition`; each attention layer then has one of its own. Where a
token stands is an integer, and tables are float32 whatever the model computes in: a value is rounded once, where it
meets the activations.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gptlab.errors import ConfigError, unknown
from gptlab.model.layers import Embedding, ExactTables
from gptlab.model.rope_scaling import frequencies
from gptlab.registry import register


@register("position", "learned")
class LearnedPosition(Embedding):
    """One trained vector for each of the context_length positions (GPT-2)."""

    def __init__(self, context_length: int, emb_dim: int) -> None:
        super().__init__(context_length, emb_dim)

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        return super().forward(_from_zero(tokens) if positions is None else positions)


@register("position", "sinusoidal")
class SinusoidalPosition(ExactTables):
    """sin and cos (even and odd features) of t / 10000^(2i/emb_dim): fixed, no parameters (Vaswani et al. 2017)."""

    table: Tensor

    def __init__(self, context_length: int, emb_dim: int, base: float = 10_000.0) -> None:
        super().__init__()
        _check_base(base)
        rates = frequencies(emb_dim, base, "none", {})[0]
        angles = torch.arange(context_length, dtype=torch.float64)[:, None] * rates
        table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :emb_dim]  # an odd width ends on a sine
        self.register_buffer("table", table.float(), persistent=False)

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        return self.table[_from_zero(tokens) if positions is None else positions].to(tokens.dtype)


class AttentionPosition(ExactTables):
    """Acts inside attention, on queries and keys or on the logits, and adds nothing to the embeddings."""

    def forward(self, tokens: Tensor) -> None:
        return None

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """q (B, n_heads, T, head_dim) and k (B, n_kv_heads, T, head_dim), changed by `positions`, (T,) int64."""
        return q, k

    def bias(self, positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """What is added to the logits, (n_heads, T, S), for queries at `positions` (T,) and keys at S others: float32.

        The caller rounds it, once.
        """
        return None


@register("position", "rope")
class RotaryPosition(AttentionPosition):
    """Turns queries and keys by an angle that grows with the position, so that logits see distances (Su et al. 2021).

    pairing: `half` pairs feature i with i + n/2 (Llama), `interleaved` pairs 2i with 2i + 1 (GPT-J), of the n features
    that turn: the first `fraction` of each head (GPT-NeoX, Phi), the rest sees no positions. `scaling` stretches the
    rotation to `factor` times the context: see `gptlab.model.rope_scaling`.
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        context_length: int,
        emb_dim: int,
        n_heads: int,
        base: float = 10_000.0,
        pairing: str = "half",
        head_dim: int | None = None,
        fraction: float = 1.0,
        scaling: str = "none",
        factor: float | None = None,
        original_context: int | None = None,
        beta_fast: float | None = None,
        beta_slow: float | None = None,
        attention_factor: float | None = None,
        low_freq_factor: float | None = None,
        high_freq_factor: float | None = None,
    ) -> None:
        super().__init__()
        self.turned = _turned_features(head_dim or emb_dim // n_heads, fraction)
        if pairing not in ("half", "interleaved"):
            raise unknown("model.options.position.pairing", pairing, ("half", "interleaved"))
        _check_base(base)
        self.pairing = pairing
        given = {
            "factor": factor, "original_context": original_context, "beta_fast": beta_fast, "beta_slow": beta_slow,
            "attention_factor": attention_factor, "low_freq_factor": low_freq_factor,
            "high_freq_factor": high_freq_factor,
        }  # fmt: skip
        rates, size = frequencies(self.turned, base, scaling, given)
        angles = torch.arange(context_length, dtype=torch.float64)[:, None] * rates  # (context_length, turned / 2)
        self.register_buffer("cos", (angles.cos() * size).float(), persistent=False)
        self.register_buffer("sin", (angles.sin() * size).float(), persistent=False)

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.cos[positions].to(q.dtype), self.sin[positions].to(q.dtype)  # (T, turned / 2)
        return self._partly(q, cos, sin), self._partly(k, cos, sin)

    def _partly(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        if self.turned == x.shape[-1]:
            return self._turned(x, cos, sin)
        return torch.cat((self._turned(x[..., : self.turned], cos, sin), x[..., self.turned :]), dim=-1)

    def _turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        if self.pairing == "half":
            a, b = x.chunk(2, dim=-1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)

    def extra_repr(self) -> str:
        return f"pairing={self.pairing}, turned={self.turned}"


@register("position", "alibi")
class ALiBi(AttentionPosition):
    """Takes slope * distance from each attention logit, a steeper slope for each head (Press et al. 2021)."""

    slopes: Tensor

    def __init__(self, n_heads: int, causal: bool = True) -> None:
        super().__init__()
        if not causal:
            raise ConfigError(
                "model.position=alibi: measures how far back a token lies, and model.causal=false looks ahead.",
                code="alibi-not-causal",
                key="model.position",
                value="alibi",
            )
        self.register_buffer("slopes", torch.tensor(alibi_slopes(n_heads)), persistent=False)

    def bias(self, positions: Tensor, key_positions: Tensor) -> Tensor:
        return self.slopes[:, None, None] * (key_positions - positions[:, None])  # negative for the past


@register("position", "none")
class NoPosition(nn.Module):
    """No position at all: only a causal mask can then tell order (NoPE, Haviv et al. 2022)."""

    def forward(self, tokens: Tensor) -> None:
        return None


def _from_zero(tokens: Tensor) -> Tensor:
    """Where (B, T, emb_dim) stand that come from nowhere else: 0 to T - 1."""
    return torch.arange(tokens.shape[1], device=tokens.device)


def alibi_slopes(n_heads: int) -> list[float]:
    """2^(-8 i / n) for the largest power of two n within n_heads; the rest from every other slope of 2n."""
    n = 2 ** (n_heads.bit_length() - 1)
    slopes = [2 ** (-8 * i / n) for i in range(1, n + 1)]
    return slopes + [2 ** (-8 * i / (2 * n)) for i in range(1, 2 * (n_heads - n), 2)]


def _turned_features(head_dim: int, fraction: float) -> int:
    """How many features of a head turn, whole pairs."""
    if not 0 < fraction <= 1:
        raise ConfigError(
            f"model.options.position.fraction={fraction:g}: must lie above 0, and at most at 1.",
            code="rope-fraction",
            key="model.options.position.fraction",
            value=fraction,
        )
    turned = int(head_dim * fraction + 1e-6)  # 0.29 * 100 is 28.999...
    if fraction == 1 and head_dim % 2:
        raise ConfigError(
            f"model.position=rope: turns pairs of features, and a head has {head_dim}, an odd number.",
            code="rope-odd-head",
            key="model.position",
            value="rope",
            head_dim=head_dim,
        )
    if turned % 2 or not turned:
        raise ConfigError(
            f"model.options.position.fraction={fraction:g}: turns {turned} of a head's {head_dim} features, and they "
            "turn in pairs.",
            code="rope-fraction-odd",
            key="model.options.position.fraction",
            value=fraction,
            head_dim=head_dim,
            turned=turned,
        )
    return turned


def _check_base(base: float) -> None:
    if not base > 1:
        raise ConfigError(
            f"model.options.position.base={base:g}: must be above 1.",
            code="position-base",
            key="model.options.position.base",
            value=base,
        )
