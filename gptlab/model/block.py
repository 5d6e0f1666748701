"""One transformer block: two branches, attention and feed-forward, each joined to the residual stream."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor, nn

from gptlab.config import ModelConfig
from gptlab.model.layers import Linear
from gptlab.model.slots import Parts


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
LAYOUTS = {  # layout -> whether the block has (attention, a feed-forward layer)
    "serial": (True, True),
    "parallel": (True, True),
    "attention_only": (True, False),
    "feed_forward_only": (False, True),
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

    The layout says how the two branches meet:

    serial    x = x + A(x), then x = x + F(x), each as above
    parallel  x + A(N(x)) + F(N(x)) with one norm for both (GPT-J, PaLM)
    attention_only, feed_forward_only: one branch
    """

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        parts = Parts(config, layer)
        place = PLACEMENTS[config.norm_placement]
        has_att, has_ff = LAYOUTS[config.layout]
        self.parallel = config.layout == "parallel"
        stands = place.before or place.after

        def norm(wanted: bool) -> nn.Module:
            return parts("norm", dim=config.emb_dim) if wanted else nn.Identity()

        self.att = parts("attention") if has_att else None
        self.ff = parts("feed_forward") if has_ff else None
        self.norm1 = norm(stands and (has_att or self.parallel))
        self.norm2 = norm(stands and has_ff and not self.parallel)
        self.norm1_output = norm(place.output and has_att)
        self.norm2_output = norm(place.output and has_ff)
        self.shortcut_att = parts("shortcut", config.shortcut_attention) if has_att else None
        self.shortcut_ff = parts("shortcut", config.shortcut_feed_forward) if has_ff else None
        self.drop_shortcut = nn.Dropout(parts.config.drop_shortcut or 0.0)
        self.norm_after = place.after
        self.norm_scale = 1 / math.sqrt(layer + 1) if config.norm_placement == "lns" else 1.0
        self.stream_scale = 1.0
        if config.norm_placement == "deepnorm":
            self.stream_scale = (2 * config.n_layers) ** 0.25
            for module in self.modules():
                if isinstance(module, Linear) and module.branch:
                    module.gain = (8 * config.n_layers) ** -0.25

    def forward(self, x: Tensor) -> Tensor:
        if self.parallel:
            return self._parallel(x)
        if self.att is not None:
            y = self._branch(x, self.att, self.norm1, self.norm1_output)
            x = self._joined(x, y, self.shortcut_att, self.norm1)
        if self.ff is not None:
            y = self._branch(x, self.ff, self.norm2, self.norm2_output)
            x = self._joined(x, y, self.shortcut_ff, self.norm2)
        return x

    def _parallel(self, x: Tensor) -> Tensor:
        both = [
            self._branch(x, f, self.norm1, out)
            for f, out in ((self.att, self.norm1_output), (self.ff, self.norm2_output))
            if f is not None
        ]
        for y, shortcut in zip(both, (self.shortcut_att, self.shortcut_ff), strict=True):
            assert shortcut is not None
            x = shortcut(self.stream_scale * x if shortcut is self.shortcut_att else x, y)
        return self.norm1(x) if self.norm_after else x

    def _branch(self, x: Tensor, f: nn.Module, norm: nn.Module, norm_output: nn.Module) -> Tensor:
        y = f(x if self.norm_after else self._scaled(norm(x)))
        return self.drop_shortcut(norm_output(y))

    def _joined(self, x: Tensor, y: Tensor, shortcut: nn.Module | None, norm: nn.Module) -> Tensor:
        assert shortcut is not None
        x = shortcut(x if self.stream_scale == 1.0 else self.stream_scale * x, y)
        return norm(x) if self.norm_after else x

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.norm_scale == 1.0 else x * self.norm_scale

    def extra_repr(self) -> str:
        placed = f"parallel={self.parallel}, norm_after={self.norm_after}"
        return f"{placed}, norm_scale={self.norm_scale:g}, stream_scale={self.stream_scale:g}"
