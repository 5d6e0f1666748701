"""How one tensor of another project's file becomes one or several of gptlab's, and back. Nothing is computed but order.

A piece knows the name there, the names here, and two functions that are each other's inverse. Shapes follow from
calling them on the meta device, so they are nowhere written down a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Piece:
    """The same tensor under two names."""

    theirs: str
    ours: tuple[str, ...]

    def split(self, tensor: Tensor) -> Sequence[Tensor]:
        """Theirs -> ours."""
        return (tensor,)

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """Ours -> theirs."""
        return tensors[0]


@dataclass(frozen=True)
class Transposed(Piece):
    """(in, out) there, as in GPT-2's Conv1D; (out, in) here."""

    def split(self, tensor: Tensor) -> Sequence[Tensor]:
        return (tensor.t(),)

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        return tensors[0].t()


@dataclass(frozen=True)
class Stacked(Piece):
    """Queries, keys and values of equal size, one after the other along the outputs (the first dimension)."""

    def split(self, tensor: Tensor) -> Sequence[Tensor]:
        return tensor.chunk(len(self.ours), 0)

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        from torch import cat

        return cat(list(tensors), 0)


@dataclass(frozen=True)
class StackedTransposed(Stacked):
    """As `Stacked`, and (in, out) there: GPT-2's c_attn.weight."""

    def split(self, tensor: Tensor) -> Sequence[Tensor]:
        return super().split(tensor.t())

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        return super().join(tensors).t()


@dataclass(frozen=True)
class ByHead(Piece):
    """Queries, keys and values of the first head, then of the second, ... (GPT-NeoX): (n_heads * 3 * head_dim, ...)."""

    n_heads: int = 1

    def split(self, tensor: Tensor) -> Sequence[Tensor]:
        heads = tensor.unflatten(0, (self.n_heads, len(self.ours), -1))
        return [heads[:, place].flatten(0, 1) for place in range(len(self.ours))]

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        heads = [tensor.unflatten(0, (self.n_heads, -1)) for tensor in tensors]
        from torch import stack

        return stack(heads, 1).flatten(0, 2)


@dataclass(frozen=True)
class FromOne(Piece):
    """The scale of a norm, counted from one there (Gemma). Scales of 0.5 to 2 survive a round trip bit for bit."""

    def split(self, tensor: Tensor) -> Sequence[Tensor]:
        return (tensor.float() + 1.0,)

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        return tensors[0] - 1.0


@dataclass(frozen=True)
class Interleaved(Piece):
    """Rows of queries or keys: pair by pair within a head there (Meta, GGUF), first halves before second ones here."""

    n_heads: int = 1

    def split(self, tensor: Tensor) -> Sequence[Tensor]:
        return (tensor.unflatten(0, (self.n_heads, -1, 2)).transpose(1, 2).flatten(0, 2),)

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        return tensors[0].unflatten(0, (self.n_heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def pairs(kind: type[Piece], there: str, here: str, names: Sequence[tuple[str, str]]) -> list[Piece]:
    """One piece for each (name there, name here) below the two prefixes, as for weight and bias."""
    return [kind(f"{there}.{theirs}", (f"{here}.{ours}",)) for theirs, ours in names]


BOTH = (("weight", "weight"), ("bias", "bias"))
NORM = (("weight", "scale"), ("bias", "shift"))
