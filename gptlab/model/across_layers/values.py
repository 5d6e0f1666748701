"""What the values of attention may have beside those of their own layer's stream: the first layer's, or a table's.

                     first layer                          layer l
    x ── W_value ── V_1 ──┬── attended to      x ── W_value ── V_l ──(+)── attended to
                          └──── handed on as `first_values` ──────────┘
    ids ── table ── E, in the layer itself ───────────────────────────┘

Both are parts of `attention=multi_head` that its options bring in; the decoding state holds what is attended to.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gptlab.errors import GptlabError, unknown
from gptlab.model.layers import Embedding

MIXES = ("none", "fixed", "learned")
HALF = 0.5


def check_mix(value_residual: str) -> None:
    """ConfigError for a mix that there is not."""
    if value_residual not in MIXES:
        raise unknown("model.options.attention.value_residual", value_residual, MIXES)


class ValueMix(nn.Module):
    """V = own * V_l + first * V_1, both (B, n_kv_heads, T, head_dim) (value residual; Zhou et al. 2024, ResFormer).

    own and first are 1/2, or two numbers of each layer that are trained from there. Where nothing is handed on, as in
    the first layer that mixes, V_1 is V_l. Layer 0 has no mix: its values are the first.
    """

    def __init__(self, learned: bool) -> None:
        super().__init__()
        shares = torch.full((2,), HALF)
        self.shares = nn.Parameter(shares) if learned else None

    def forward(self, own: Tensor, first: Tensor) -> Tensor:
        if first.shape != own.shape:
            raise GptlabError(
                f"value_residual: this layer's values are {_said(own)}, the first layer's {_said(first)}. Layers that "
                "share values have equally many heads for them, equally wide.",
                code="first-values-shape", value=_said(own), first=_said(first),
            )  # fmt: skip
        if self.shares is None:
            return torch.lerp(own, first, HALF)
        return self.shares[0] * own + self.shares[1] * first

    def parameter_roles(self) -> dict[str, str]:
        return {"shares": "gain"} if self.shares is not None else {}

    def extra_repr(self) -> str:
        return f"learned={self.shares is not None}"


class ValueEmbedding(nn.Module):
    """V + scale * E[ids]: each token's own row of a table is added to its values (modded-nanogpt 2024; nanochat).

    (B, n_kv_heads, T, head_dim), with a table (vocab_size, n_kv_heads * head_dim) of the layer's own and a trained
    scale from 1/2. It costs no products, only weights.
    """

    def __init__(self, vocab_size: int, n_kv_heads: int, head_dim: int) -> None:
        super().__init__()
        self.n_kv_heads = n_kv_heads
        self.table = Embedding(vocab_size, n_kv_heads * head_dim)
        self.scale = nn.Parameter(torch.tensor(HALF))

    def forward(self, values: Tensor, ids: Tensor) -> Tensor:
        rows = self.table(ids).unflatten(-1, (self.n_kv_heads, -1)).transpose(1, 2)
        return values + self.scale * rows

    def parameter_roles(self) -> dict[str, str]:
        return {"scale": "gain"}


def _said(values: Tensor) -> str:
    return f"{values.shape[1]} heads of {values.shape[3]}"
