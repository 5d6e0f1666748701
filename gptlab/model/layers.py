"""The two kinds of layer that hold nearly all weights. They leave their values to `init` when a model is built.

Outside `uninitialised()` both behave exactly as their torch parents, so a component also works on its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import nn

_leave_empty: ContextVar[bool] = ContextVar("leave_empty", default=False)


@contextmanager
def uninitialised() -> Iterator[None]:
    """Within this context, `Linear` and `Embedding` draw nothing: their weights are whatever the memory held."""
    token = _leave_empty.set(True)
    try:
        yield
    finally:
        _leave_empty.reset(token)


class Linear(nn.Linear):
    """x @ W.T + b, (..., in_features) -> (..., out_features).

    `into_stream` marks the last layer of a branch, the one whose output is added to the residual stream: GPT-2 scales
    its initial weights by 1/sqrt(2 n_layers).
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, into_stream: bool = False) -> None:
        super().__init__(in_features, out_features, bias=bias)
        self.into_stream = into_stream

    def reset_parameters(self) -> None:
        if not _leave_empty.get():
            super().reset_parameters()


class Embedding(nn.Embedding):
    """A table of vectors, ids (...) -> (..., embedding_dim). `tied` says that the output head shares the table."""

    tied = False

    def reset_parameters(self) -> None:
        if not _leave_empty.get():
            super().reset_parameters()
