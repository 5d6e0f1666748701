"""What a path was found to hold: the model that it implies, its tensors by name and shape, and how to read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gptlab.weights.pieces import Piece

if TYPE_CHECKING:
    from torch import Tensor


class Held(NamedTuple):
    """One tensor in a file, by its header alone."""

    shape: tuple[int, ...]
    kind: str  # as the file calls its type: F32, BF16, Q4_K

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Found:
    """Weights in a file or folder, not read yet.

    `model` holds keys of `model` in a config, as the file says them; None for one that it does not say.
    `read` takes names as the file has them and gives float32 tensors, on the CPU.
    """

    path: Path
    format: str
    family: str
    files: tuple[Path, ...]  # those with tensors
    model: Mapping[str, Any]
    held: Mapping[str, Held]  # by their names in the file
    pieces: tuple[Piece, ...]
    read: Callable[[Collection[str]], dict[str, Tensor]]
    dropped: Mapping[str, str] = field(default_factory=dict)  # name -> why it is no weight
    notes: tuple[str, ...] = ()
    tokenizer: Path | None = None

    @property
    def used(self) -> list[Piece]:
        """The pieces whose tensors are there."""
        return [piece for piece in self.pieces if piece.theirs in self.held and piece.theirs not in self.dropped]

    @property
    def strange(self) -> list[str]:
        """Names that no piece takes, and that are no masks or tables either."""
        known = {piece.theirs for piece in self.pieces} | self.dropped.keys()
        return sorted(name for name in self.held if name not in known)

    def offered(self) -> dict[str, tuple[int, ...]]:
        """Our name -> shape, of all that the file gives. Nothing is read."""
        import torch

        found: dict[str, tuple[int, ...]] = {}
        for piece in self.used:
            parts = piece.split(torch.empty(self.held[piece.theirs].shape, device="meta"))
            found |= {name: tuple(part.shape) for name, part in zip(piece.ours, parts, strict=True)}
        return found

    def tensors(self, names: Collection[str]) -> dict[str, Tensor]:
        """Our name -> float32 tensor, for those of `names` that the file gives."""
        wanted = [piece for piece in self.used if set(piece.ours) & set(names)]
        there = self.read([piece.theirs for piece in wanted])
        found: dict[str, Tensor] = {}
        for piece in wanted:
            found |= zip(piece.ours, piece.split(there.pop(piece.theirs)), strict=True)
        return {name: found[name] for name in names if name in found}
