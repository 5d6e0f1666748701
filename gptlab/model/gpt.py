"""The GPT, top to bottom: token ids (B, T) in, logits (B, T, vocab_size) out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gptlab.config import ModelConfig
from gptlab.errors import ConfigError
from gptlab.model.block import PLACEMENTS
from gptlab.model.branches import Branch, HasBranches
from gptlab.model.contract import BlockOutput, Context, Given, check_handed, signature_of
from gptlab.model.decoding import Decoding, empty
from gptlab.model.layers import Embedding, unit_norm
from gptlab.model.pattern import expanded
from gptlab.model.per_layer import layer_config
from gptlab.model.slots import Parts


class Output(NamedTuple):
    """What a pass gives: what the head sees (B, T, emb_dim), auxiliary losses by name, and the next decoding state."""

    features: Tensor
    losses: Mapping[str, Tensor]
    decoding: Decoding | None = None


class GPT(nn.Module):
    """A decoder-only transformer, assembled from the components that `config` names.

    With `loops` above 1 the stream passes the blocks again and again, with the same weights each time, as in the
    universal transformer (Dehghani et al. 2018; Takase & Kiyono 2021 call this order `cycle`):

        x ── block 0 ── ... ── block L-1 ──┬── norm ── head
             └─────────── again ───────────┘

    What is given by layer (a state, a row of a probe) counts passes: layer L is block 0, the second time.

    Names and order of the parameters are those of chapter 4 of *Build a Large Language Model (From Scratch)*, so a
    checkpoint of the book's code loads, and one global random stream gives the book's weights.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        config = expanded(config)
        parts = Parts(config)
        place = PLACEMENTS[config.norm_placement]
        self.context_length, self.loops = config.context_length, config.loops
        self.weight_rule = config.after_step
        self.tok_emb = Embedding(config.vocab_size, config.emb_dim)
        self.pos_emb = parts("position")
        self.drop_emb = nn.Dropout(parts.config.drop_embedding or 0.0)
        self.trf_blocks = nn.ModuleList(Parts(layer_config(config, i), i)("block") for i in range(config.n_layers))
        self.final_norm = parts("norm", dim=config.emb_dim) if place.final else nn.Identity()
        self.out_head = parts("head")
        self.emb_norm = parts("norm", dim=config.emb_dim) if place.embedding else nn.Identity()
        self.embedding_scale = math.sqrt(config.emb_dim) if config.embedding_scale == "sqrt_dim" else 1.0
        self.embedding_scale *= config.embedding_multiplier
        if config.tie_weights:
            self.out_head.weight = self.tok_emb.weight
            self.tok_emb.tied = True
            self.register_load_state_dict_pre_hook(_refuse_untied)  # type: ignore[no-untyped-call]

        self.position = signature_of(self.pos_emb)
        check_handed(self.passed())

    def forward(self, ids: Tensor) -> Tensor:
        return self.out_head(self.run(ids).features)  # (B, T, vocab_size)

    def features(self, ids: Tensor) -> Tensor:
        """What the output head sees, (B, T, emb_dim)."""
        return self.run(ids).features

    def run(self, ids: Tensor, decoding: Decoding | None = None) -> Output:
        """One pass over `ids` (B, T), and with `decoding` over these alone, after the tokens that it stands for."""
        start = decoding.length if decoding else 0
        end = start + ids.shape[1]
        if end > self.context_length:
            raise ValueError(f"{end} tokens do not fit into context_length={self.context_length}")
        positions = torch.arange(start, end, device=ids.device)
        x = self._embedded(ids, positions)
        context = Context(ids, positions, first_embeddings=x)
        losses: dict[str, Tensor] = {}
        states = []
        for place, block in enumerate(self.passed()):
            found = block(x, context._replace(states=decoding.blocks[place] if decoding else None))
            x, handed, own, kept = found if isinstance(found, BlockOutput) else BlockOutput(found)
            context = context._replace(handed={**context.handed, **handed})
            losses |= {name: losses[name] + loss if name in losses else loss for name, loss in own.items()}
            states.append(kept)
        return Output(self.final_norm(x), losses, Decoding(end, tuple(states)) if decoding else None)

    def _embedded(self, ids: Tensor, positions: Tensor) -> Tensor:
        x = self.tok_emb(ids)  # (B, T, emb_dim)
        if self.embedding_scale != 1.0:
            x = x * self.embedding_scale
        placed = self.position.call(self.pos_emb, x, Context(ids, positions), Given())  # (T, emb_dim), or None
        return self.drop_emb(self.emb_norm(x if placed is None else x + placed))

    def start_decoding(self, batch_size: int, capacity: int | None = None) -> Decoding:
        """The state before the first token, with room for `capacity` of them (None: context_length).

        GptlabError, naming the part, for a model that cannot be decoded step by step.
        """
        return empty(self.passed(), batch_size, capacity or self.context_length)

    def branches(self) -> list[Branch]:
        """The branches of all blocks that say theirs, in the order in which the stream meets them."""
        return [
            branch
            for layer, block in enumerate(self.passed())
            if isinstance(block, HasBranches)
            for branch in block.branches(layer)
        ]

    def passed(self) -> list[nn.Module]:
        """The blocks in the order in which the stream passes them: all of them, `loops` times."""
        return list(self.trf_blocks) * self.loops

    def stream_layers(self) -> list[nn.Module]:
        """The blocks, each as often as the stream passes it."""
        return self.passed()

    def after_layers(self) -> list[nn.Module]:
        """What stands behind the last block."""
        return [self.final_norm, self.out_head]

    def after_step(self) -> None:
        """What holds of the weights, made to hold again; `gptlab.model.build` does so first."""
        if self.weight_rule == "unit_norm":
            unit_norm(self)

    def parameter_roles(self) -> dict[str, str]:
        return {"out_head.weight": "head"}

    def example_input(self, batch_size: int, context: int) -> Tensor:
        """Token ids (batch_size, context), all zero, on the model's device."""
        return torch.zeros(batch_size, context, dtype=torch.long, device=self.tok_emb.weight.device)

    def extra_repr(self) -> str:
        return f"context_length={self.context_length}, loops={self.loops}, embedding_scale={self.embedding_scale:g}"


def _refuse_untied(model: GPT, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Two different tables in one tensor: the head, loaded last, would replace the embedding without a word."""
    table, head = (state.get(f"{prefix}{name}") for name in ("tok_emb.weight", "out_head.weight"))
    if table is not None and head is not None and table is not head and not torch.equal(table, head):
        raise ConfigError(
            "model.tie_weights=true: these weights have an output head of their own, and one table cannot hold both. "
            "Build the model with model.tie_weights=false.",
            code="weights-not-tied",
            key="model.tie_weights",
        )
