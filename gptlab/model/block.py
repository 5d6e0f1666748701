"""One transformer block: two branches, attention and feed-forward, each joined to the residual stream."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from gptlab.config import ModelConfig
from gptlab.model.parts import Parts


class Placement(NamedTuple):
    """Where a branch has norms: before it, on its output, after its shortcut; and whether a final norm follows."""

    before: bool
    output: bool
    after: bool
    final: bool


PLACEMENTS = {
    "pre": Placement(before=True, output=False, after=False, final=True),
    "post": Placement(before=False, output=False, after=True, final=False),
    "sandwich": Placement(before=True, output=True, after=False, final=True),
    "none": Placement(before=False, output=False, after=False, final=False),
}


class Block(nn.Module):
    """(B, T, emb_dim) -> (B, T, emb_dim). F is attention, then feed-forward; N is a norm; (+) is the shortcut.

    pre       x ──┬── N ── F ── drop ──(+)──>        GPT-2; a final norm follows the last block
                  └─────────────────────┘
    post      x ──┬── F ── drop ──(+)── N ──>        the 2017 transformer; no final norm
                  └────────────────┘
    sandwich  x ──┬── N ── F ── N ── drop ──(+)──>   CogView 2021; a final norm follows
                  └──────────────────────────┘
    none      x ──┬── F ── drop ──(+)──>             no norm anywhere
                  └────────────────┘
    """

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        parts = Parts(config, layer)
        place = PLACEMENTS[config.norm_placement]
        self.att = parts("attention")
        self.ff = parts("feed_forward")
        self.norm1 = parts("norm", dim=config.emb_dim) if place.before or place.after else nn.Identity()
        self.norm2 = parts("norm", dim=config.emb_dim) if place.before or place.after else nn.Identity()
        self.norm1_output = parts("norm", dim=config.emb_dim) if place.output else nn.Identity()
        self.norm2_output = parts("norm", dim=config.emb_dim) if place.output else nn.Identity()
        self.shortcut_att = parts("shortcut", config.shortcut_attention)
        self.shortcut_ff = parts("shortcut", config.shortcut_feed_forward)
        self.drop_shortcut = nn.Dropout(parts.config.drop_shortcut or 0.0)
        self.norm_first = place.before

    def forward(self, x: Tensor) -> Tensor:
        x = self._branch(x, self.att, self.norm1, self.norm1_output, self.shortcut_att)
        return self._branch(x, self.ff, self.norm2, self.norm2_output, self.shortcut_ff)

    def _branch(self, x: Tensor, f: nn.Module, norm: nn.Module, norm_output: nn.Module, shortcut: nn.Module) -> Tensor:
        y = norm_output(f(norm(x) if self.norm_first else x))
        x = shortcut(x, self.drop_shortcut(y))
        return x if self.norm_first else norm(x)
