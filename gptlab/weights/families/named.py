"""Weights whose names, or a few numbers beside them, say all that is known of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gptlab.weights.pieces import Piece


@dataclass(frozen=True)
class Read:
    """What was made of the names."""

    format: str
    model: Mapping[str, Any]
    pieces: Sequence[Piece]
    dropped: Mapping[str, str]
    notes: Sequence[str] = ()
