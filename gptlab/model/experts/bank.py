"""Experts side by side: (N, emb_dim) rows sorted by expert -> (N, emb_dim), each row through its own expert alone.

Nothing is dropped and nothing is padded: an expert has as many rows as tokens have chosen it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlab.model.layers import StackedLinear


class Bank(nn.Module):
    """`number` experts of one kind, and of one activation."""

    def __init__(self, number: int, activation: nn.Module, dropout: float) -> None:
        super().__init__()
        self.number, self.activation, self.drop = number, activation, dropout

    def forward(self, rows: Tensor, order: Tensor, counts: Sequence[int]) -> Tensor:
        """Row i is of expert e for the `counts[e]` rows from sum(counts[:e]) on; `order`: its place before sorting."""
        hidden = self.hidden(rows, counts)
        if self.drop and self.training:  # drawn in the order of the tokens, so that no row hangs on its neighbours
            hidden = hidden * F.dropout(torch.ones_like(hidden), self.drop).index_select(0, order)
        return self.last(hidden, counts)

    @abstractmethod
    def hidden(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """(N, width)."""

    @abstractmethod
    def last(self, hidden: Tensor, counts: Sequence[int]) -> Tensor:
        """(N, emb_dim)."""

    def extra_repr(self) -> str:
        return f"drop={self.drop}"


class PlainBank(Bank):
    """W2 act(W1 x + b1) + b2 for each expert."""

    def __init__(
        self, number: int, activation: nn.Module, emb_dim: int, width: int, bias: bool, dropout: float
    ) -> None:
        super().__init__(number, activation, dropout)
        self.first = StackedLinear(number, emb_dim, width, bias=bias, branch=True)
        self.out = StackedLinear(number, width, emb_dim, bias=bias, branch=True, into_stream=True)

    def hidden(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        bent: Tensor = self.activation(self.first(rows, counts))
        return bent

    def last(self, hidden: Tensor, counts: Sequence[int]) -> Tensor:
        return self.out(hidden, counts)


class GatedBank(Bank):
    """W2 (act(W1 x) * V x) for each expert."""

    def __init__(
        self, number: int, activation: nn.Module, emb_dim: int, width: int, bias: bool, dropout: float
    ) -> None:
        super().__init__(number, activation, dropout)
        self.gate = StackedLinear(number, emb_dim, width, bias=bias, branch=True)
        self.value = StackedLinear(number, emb_dim, width, bias=bias, branch=True)
        self.out = StackedLinear(number, width, emb_dim, bias=bias, branch=True, into_stream=True)

    def hidden(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        gated: Tensor = self.activation(self.gate(rows, counts)) * self.value(rows, counts)
        return gated

    def last(self, hidden: Tensor, counts: Sequence[int]) -> Tensor:
        return self.out(hidden, counts)


def counts_of(chosen: Tensor, number: int) -> list[int]:
    """Rows of each expert. Without values (on the meta device) all have as many: products cost the same either way."""
    if chosen.is_meta:
        total = chosen.numel()
        return [total * (i + 1) // number - total * i // number for i in range(number)]
    counts: list[int] = torch.bincount(chosen.flatten(), minlength=number).tolist()
    return counts
