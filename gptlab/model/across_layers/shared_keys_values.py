"""Attention whose keys and values several layers share: (B, T, emb_dim) -> (B, T, emb_dim)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from gptlab.errors import wrong_value
from gptlab.model.attention import MultiHeadAttention
from gptlab.model.contract import Handed
from gptlab.model.decoding import Attendable
from gptlab.model.positions import AttentionPosition
from gptlab.registry import register


class Shared(NamedTuple):
    """The stream, what to remember, and all that the newest tokens may look at."""

    y: Tensor
    state: Attendable | None
    shared_keys: Handed  # (B, n_kv_heads, S, head_dim), turned by their positions
    shared_values: Handed
    shared_at: Handed  # positions of the keys, (S,)


class GivesKeysValues(MultiHeadAttention):
    """Multi-head attention that hands its keys and values on to the layers above."""

    def forward(  # type: ignore[override]  # it always gives more than the stream
        self, x: Tensor, positions: Tensor, state: Attendable | None = None
    ) -> Shared:
        q, k, v = self.queries_keys_values(x, positions)
        at = positions
        if state is not None:
            before, state = state.length, state.extended(k, v)
            k, v, at = state.seen() if before else (k, v, positions)
        y = self._attended(q, k, v, positions, at, whole=at is positions)
        return Shared(self._projected(x, y), state, k, v, at)


class TakesKeysValues(MultiHeadAttention):
    """Multi-head attention with queries of its own, over the keys and values that the nearest layer below hands on."""

    def __init__(self, *given: object, **options: object) -> None:
        super().__init__(*given, **options)  # type: ignore[arg-type]
        del self.W_key, self.W_value

    def forward(  # type: ignore[override]
        self, x: Tensor, positions: Tensor, shared_keys: Tensor, shared_values: Tensor, shared_at: Tensor
    ) -> Tensor:
        q = self._queries(x, positions)
        whole = len(positions) == len(shared_at)
        return self._projected(x, self._attended(q, shared_keys, shared_values, positions, shared_at, whole=whole))

    def _queries(self, x: Tensor, positions: Tensor) -> Tensor:
        q = self.W_query(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        return q if self.position is None else self.position.rotate(q, q[:, :1], positions)[0]

    def attention_logits(  # type: ignore[override]
        self, x: Tensor, positions: Tensor, shared_keys: Tensor, shared_at: Tensor, **_: object
    ) -> Tensor:
        return self.logits(self._queries(x, positions), shared_keys, positions, shared_at)

    def empty_state(self, batch_size: int, capacity: int) -> None:
        """Nothing of its own: the layer below remembers."""
        super().empty_state(batch_size, capacity)  # which refuses attention without a mask


@register("attention", "shared_keys_values")
def shared_keys_values(
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
    every: int = 2,
) -> MultiHeadAttention:
    """Every `every`-th layer has keys and values, those between take its (cross-layer attention; Brandon et al. 2024).

        layer 0:  x ──┬── W_query ─────────────── attention ── out_proj ──>
                      └── W_key, W_value ──┬──────────┘
        layer 1:  x ───── W_query ─────────│───── attention ── out_proj ──>
                                           └──────────┘

    Layers 0, `every`, 2 `every`, ... have W_key and W_value. The others have none, and remember nothing while decoding:
    the cache is that much smaller. Keys are shared as they are turned by their positions. All else is `multi_head`.
    """
    if every < 1:
        raise wrong_value("model.options.attention.every", every, "must be 1 or more.", code="shared-every")
    kind = TakesKeysValues if (layer or 0) % every else GivesKeysValues
    return kind(
        emb_dim, n_heads, n_kv_heads, causal, qkv_bias, attention_bias, drop_attention, position,
        window=window, head_dim=head_dim,
    )  # fmt: skip
