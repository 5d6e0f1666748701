"""Canon layers: a short causal convolution beside the stream's own way, (B, T, width) -> (B, T, width)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlab.model.decoding import State

REACH = 4  # tokens that one sees, itself included


@dataclass(frozen=True, eq=False)
class LastInputs(State):
    """The last inputs of a convolution, (B, reach - 1, width), the oldest first; zeros stand before the first token."""

    length: int = 0
    last: Tensor | None = None

    def followed_by(self, x: Tensor) -> Tensor:
        """What the tokens of x (B, T, width) may look at, (B, reach - 1 + T, width)."""
        return F.pad(x, (0, 0, REACH - 1, 0)) if self.last is None else torch.cat((self.last, x), dim=1)

    def reordered(self, rows: Tensor) -> LastInputs:
        return self if self.last is None else replace(self, last=self.last[rows])

    def joined(self, other: LastInputs) -> LastInputs:
        if self.last is None or other.last is None:
            return self
        return replace(self, last=torch.cat((self.last, other.last)))


class Mixed(NamedTuple):
    """The new stream, and what to remember."""

    x: Tensor
    state: LastInputs | None


class Canon(nn.Module):
    """x_t + sum_k w_k * x_(t-k), k = 0 to 3, each w_k one number for each feature (Allen-Zhu 2025, Canon layers).

        x ──┬───────────────────────────(+)──>
            └── w_0 x_t + ... + w_3 x_(t-3) ──┘

    No bias, no nonlinearity; it starts as torch's convolutions do, from U(-1/2, 1/2). Before the first token there are
    zeros. It is no matrix product: 8 operations a feature that the count of FLOPs, as for norms, leaves out.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(REACH, width))  # w_0 first
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights from U(-1/sqrt(reach), 1/sqrt(reach))."""
        if not self.weight.is_meta:
            nn.init.uniform_(self.weight, -1 / math.sqrt(REACH), 1 / math.sqrt(REACH))

    def parameter_roles(self) -> dict[str, str]:
        return {"weight": "gain"}

    def forward(self, x: Tensor, state: LastInputs | None = None) -> Tensor | Mixed:
        seen = (state or LastInputs()).followed_by(x)
        length, y = x.shape[1], x
        for back, weight in enumerate(self.weight):
            first = REACH - 1 - back
            y = y + weight * seen[:, first : first + length]
        if state is None:
            return y
        return Mixed(y, LastInputs(state.length + length, seen[:, -(REACH - 1) :]))

    def empty_state(self, batch_size: int, capacity: int) -> LastInputs:
        return LastInputs()

    def extra_repr(self) -> str:
        return f"width={self.weight.shape[1]}, reach={REACH}"
