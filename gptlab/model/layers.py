"""The two kinds of layer that hold nearly all weights. They leave their values to `init` when a model is built.

Outside `uninitialised()` both behave exactly as their torch parents, so a component also works on its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

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
    """x @ W.T + b, (..., in_features) -> (..., out_features). It tells `init` what it is for:

    branch        its size sets the size of a branch's output: all but queries and keys, which meet in a softmax
    into_stream   the last layer of a branch, whose output is added to the residual stream
    head          it turns features into logits
    gain          a factor on the initial scale; DeepNorm sets it on the layers of a branch
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        branch: bool = False,
        into_stream: bool = False,
        head: bool = False,
    ) -> None:
        super().__init__(in_features, out_features, bias=bias)
        self.branch = branch
        self.into_stream = into_stream
        self.head = head
        self.gain = 1.0

    def reset_parameters(self) -> None:
        if not _leave_empty.get():
            super().reset_parameters()


class Embedding(nn.Embedding):
    """A table of vectors, ids (...) -> (..., embedding_dim). `tied` says that the output head shares the table."""

    tied = False

    def reset_parameters(self) -> None:
        if not _leave_empty.get():
            super().reset_parameters()


class ExactTables(nn.Module):
    """A module whose buffers keep their type: `.to(bfloat16)` moves them to another device, and never rounds them."""

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in before.items():
            moved = self._buffers[name]
            if buffer is not None and moved is not None and moved.dtype != buffer.dtype:
                self._buffers[name] = buffer.to(moved.device)
        return self
