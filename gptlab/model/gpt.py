"""The GPT, top to bottom: token ids (B, T) in, logits (B, T, vocab_size) out."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from gptlab.config import ModelConfig
from gptlab.model.block import PLACEMENTS, Block
from gptlab.model.layers import Embedding, Linear
from gptlab.model.per_layer import layer_config
from gptlab.model.slots import Parts


class GPT(nn.Module):
    """A decoder-only transformer, assembled from the components that `config` names.

    Names and order of the parameters are those of chapter 4 of *Build a Large Language Model (From Scratch)*, so a
    checkpoint of the book's code loads, and one global random stream gives the book's weights.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        parts = Parts(config)
        place = PLACEMENTS[config.norm_placement]
        self.context_length = config.context_length
        self.tok_emb = Embedding(config.vocab_size, config.emb_dim)
        self.pos_emb = parts("position")
        self.drop_emb = nn.Dropout(parts.config.drop_embedding or 0.0)
        self.trf_blocks = nn.Sequential(*(Block(layer_config(config, i), i) for i in range(config.n_layers)))
        self.final_norm = parts("norm", dim=config.emb_dim) if place.final else nn.Identity()
        self.out_head = Linear(config.emb_dim, config.vocab_size, bias=False, head=True)
        self.emb_norm = parts("norm", dim=config.emb_dim) if place.embedding else nn.Identity()
        self.embedding_scale = math.sqrt(config.emb_dim) if config.embedding_scale == "sqrt_dim" else 1.0
        if config.tie_weights:
            self.out_head.weight = self.tok_emb.weight
            self.tok_emb.tied = True

    def forward(self, ids: Tensor) -> Tensor:
        return self.out_head(self.features(ids))  # (B, T, vocab_size)

    def features(self, ids: Tensor) -> Tensor:
        """What the output head sees, (B, T, emb_dim)."""
        if ids.shape[1] > self.context_length:
            raise ValueError(f"{ids.shape[1]} tokens do not fit into context_length={self.context_length}")
        x = self.tok_emb(ids)  # (B, T, emb_dim)
        if self.embedding_scale != 1.0:
            x = x * self.embedding_scale
        positions = self.pos_emb(x)  # (T, emb_dim), the same for every sequence, or None
        x = self.drop_emb(self.emb_norm(x if positions is None else x + positions))
        return self.final_norm(self.trf_blocks(x))  # (B, T, emb_dim)

    def parameter_roles(self) -> dict[str, str]:
        return {"out_head.weight": "head"}

    def example_input(self, batch_size: int, context: int) -> Tensor:
        """Token ids (batch_size, context), all zero, on the model's device."""
        return torch.zeros(batch_size, context, dtype=torch.long, device=self.tok_emb.weight.device)

    def extra_repr(self) -> str:
        return f"context_length={self.context_length}, embedding_scale={self.embedding_scale:g}"
