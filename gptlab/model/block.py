"""One layer of the model: branches, attention and feed-forward, each joined to the residual stream."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from gptlab.model.across_tokens.canon import Canon
from gptlab.model.branches import Branch
from gptlab.model.contract import BlockOutput, Context, Given, Signature, alone, signature_of
from gptlab.model.decoding import Decodable, State, not_decodable
from gptlab.model.layers import Linear


class Placement(NamedTuple):
    """Where norms stand: before a branch, on its output, after its shortcut, behind all blocks, on the embeddings."""

    before: bool = False
    output: bool = False
    after: bool = False
    final: bool = True
    embedding: bool = False


PLACEMENTS = {
    "pre": Placement(before=True),
    "post": Placement(after=True, final=False),
    "sandwich": Placement(before=True, output=True),
    "peri": Placement(before=True, output=True, embedding=True),
    "out": Placement(output=True),
    "lns": Placement(before=True),
    "deepnorm": Placement(after=True, final=False),
    "none": Placement(final=False),
}


class Block(nn.Module):
    """(B, T, emb_dim) -> (B, T, emb_dim). F is attention, then feed-forward; N is a norm; (+) is the shortcut.

    pre       x ──┬── N ── F ── drop ──(+)──>          GPT-2; a final norm follows the last block
                  └─────────────────────┘
    post      x ──┬── F ── drop ──(+)── N ──>          the 2017 transformer; no final norm
                  └────────────────┘
    sandwich  x ──┬── N ── F ── N ── drop ──(+)──>     CogView 2021; final norm
                  └──────────────────────────┘
    peri      as sandwich, with a norm on the embeddings too (Kim et al. 2025)
    out       x ──┬── F ── N ── drop ──(+)──>          OLMo 2; final norm
                  └─────────────────────┘
    lns       as pre, with N / sqrt(l) in the l-th block, from 1 (LayerNorm scaling, Sun et al. 2025)
    deepnorm  as post, with N(alpha x + F(x)), alpha = (2L)^(1/4), and the weights of F drawn (8L)^(-1/4) as large
              (Wang et al. 2022)
    none      x ──┬── F ── drop ──(+)──>               no norm anywhere
                  └────────────────┘

    A `skip` may give the stream more as it enters: `gptlab.model.across_layers.skips`.
    With `canon_attention` and `canon_feed_forward` a short convolution stands right before F (sites A and C of Canon
    layers): `gptlab.model.across_tokens.canon`.
    How the two branches meet is the layout: `gptlab.model.layouts`. Called with a context, a block returns all that it
    gives (`gptlab.model.contract`); called with `x` alone, as in the book, it returns the stream alone.
    """

    beside = False  # both branches read the stream as it enters the block
    one_norm = False  # for both branches

    def __init__(
        self,
        emb_dim: int,
        n_layers: int,
        layer: int,
        norm_placement: str,
        drop_shortcut: float,
        norm: Callable[[int], nn.Module],
        skip: nn.Module | None = None,
        attention: nn.Module | None = None,
        feed_forward: nn.Module | None = None,
        shortcut_attention: nn.Module | None = None,
        shortcut_feed_forward: nn.Module | None = None,
        canon_attention: bool = False,
        canon_feed_forward: bool = False,
    ) -> None:
        super().__init__()
        place = PLACEMENTS[norm_placement]
        stands, both = place.before or place.after, self.one_norm

        def norm_if(wanted: bool) -> nn.Module:
            return norm(emb_dim) if wanted else nn.Identity()

        self.att, self.ff = attention, feed_forward
        self.norm1 = norm_if(stands and (attention is not None or both))
        self.norm2 = norm_if(stands and feed_forward is not None and not both)
        self.norm1_output = norm_if(place.output and attention is not None)
        self.norm2_output = norm_if(place.output and feed_forward is not None)
        self.shortcut_att, self.shortcut_ff = shortcut_attention, shortcut_feed_forward
        self.drop_shortcut = nn.Dropout(drop_shortcut)
        self.norm_after = place.after
        self.norm_scale = 1 / math.sqrt(layer + 1) if norm_placement == "lns" else 1.0
        self.stream_scale = 1.0
        if norm_placement == "deepnorm":
            self.stream_scale = (2 * n_layers) ** 0.25
            for module in self.modules():
                if isinstance(module, Linear) and module.branch:
                    module.gain = (8 * n_layers) ** -0.25
        self.skip = None if isinstance(skip, nn.Identity) else skip
        self.canon_att = Canon(emb_dim) if canon_attention else None
        self.canon_ff = Canon(emb_dim) if canon_feed_forward else None
        self.signatures: dict[str, Signature] = {name: signature_of(part) for name, part in self._called()}

    def forward(self, x: Tensor, context: Context | None = None) -> Tensor | BlockOutput:
        given, around = Given(), alone(x) if context is None else context
        if self.skip is not None:
            x = self.signatures["skip"].call(self.skip, x, around, given, "skip")
        stream = self.joined(x, around, given)
        return stream if context is None else BlockOutput(stream, given.handed, given.losses, given.states)

    def joined(self, x: Tensor, context: Context, given: Given) -> Tensor:
        """The stream with what the branches add to it: here one after the other."""
        for name, _ in self._parts():
            norm, _, shortcut = self._around(name)
            y = self._branch(name, x, context, given)
            x = shortcut(x if self.stream_scale == 1.0 else self.stream_scale * x, y)
            x = norm(x) if self.norm_after else x
        return x

    def branches(self, layer: int) -> list[Branch]:
        """Those of this block, which is number `layer`, in order."""
        found: list[Branch] = []
        for name, inner in self._parts():
            norm, output, shortcut = self._around(name)
            beside = self.beside and bool(found)
            canon = getattr(self, f"canon_{name}")
            inside = (inner, output) if canon is None else (canon, inner, output)
            place = inside if self.norm_after else (norm, *inside)
            found.append(
                Branch(
                    layer,
                    part="attention" if name == "att" else "feed_forward",
                    entry=place[0],
                    inner=inner,
                    shortcut=shortcut,
                    inside=place,
                    behind=(shortcut, norm) if self.norm_after else (shortcut,),
                    stream_scale=1.0 if beside else self.stream_scale,
                    beside=beside,
                )
            )
        return found

    def empty_states(self, batch_size: int, capacity: int) -> dict[str, State]:
        """What the parts remember before the first token, by their names. GptlabError for one that cannot."""
        states = {}
        for name, part in self._called():
            if isinstance(part, Decodable):
                if (state := part.empty_state(batch_size, capacity)) is not None:
                    states[name] = state
            elif name == "att" and not isinstance(part, nn.Identity):
                raise not_decodable(type(part).__name__, "empty_state")
        return states

    def declares(self) -> list[Signature]:
        """What the parts ask for and give, in the order in which they are called."""
        return list(self.signatures.values())

    def _branch(self, name: str, x: Tensor, context: Context, given: Given) -> Tensor:
        """What one branch, `att` or `ff`, computes from the stream."""
        norm, output, _ = self._around(name)
        if not self.norm_after:
            x = norm(x)
            x = x if self.norm_scale == 1.0 else x * self.norm_scale
        for part in (f"canon_{name}", name):
            if part in self.signatures:
                x = self.signatures[part].call(getattr(self, part), x, context, given, part)
        dropped: Tensor = self.drop_shortcut(output(x))
        return dropped

    def _called(self) -> list[tuple[str, nn.Module]]:
        """All that is called with the stream: the skip, then the branches, each behind its convolution."""
        names = ("skip", "canon_att", "att", "canon_ff", "ff")
        return [(name, part) for name in names if (part := getattr(self, name)) is not None]

    def _parts(self) -> list[tuple[str, nn.Module]]:
        return [(name, part) for name, part in (("att", self.att), ("ff", self.ff)) if part is not None]

    def _around(self, name: str) -> tuple[nn.Module, nn.Module, nn.Module]:
        """(norm, norm of the output, shortcut) of a branch."""
        first = name == "att"
        shortcut = self.shortcut_att if first else self.shortcut_ff
        assert shortcut is not None
        norm = self.norm1 if first or self.one_norm else self.norm2
        return norm, self.norm1_output if first else self.norm2_output, shortcut

    def extra_repr(self) -> str:
        placed = f"parallel={self.beside}, one_norm={self.one_norm}, norm_after={self.norm_after}"
        return f"{placed}, norm_scale={self.norm_scale:g}, stream_scale={self.stream_scale:g}"
