"""The kinds of layer that hold nearly all weights. They leave their values to `init` when a model is built.

Outside `uninitialised()` they behave exactly as their torch parents, so a component also works on its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, Self, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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


class StackedLinear(Linear):
    """`number` linear layers of one shape: weight (number, out_features, in_features), bias (number, out_features).

    `init` draws the whole stack at once, each number as that of a layer by itself.
    """

    def __init__(self, number: int, in_features: int, out_features: int, bias: bool = True, **uses: bool) -> None:
        super().__init__(in_features, out_features, bias=bias, **uses)
        self.number = number
        self.weight = nn.Parameter(torch.empty(number, out_features, in_features))
        if bias:
            self.bias = nn.Parameter(torch.empty(number, out_features))
        self.reset_parameters()

    def parameter_roles(self) -> dict[str, str]:
        """The biases are biases, though they lie one above the other."""
        return {"bias": "vector"}

    def forward(self, rows: Tensor, counts: Sequence[int]) -> Tensor:  # type: ignore[override]
        """rows (N, in_features), the first counts[0] of them for the first layer, and so on -> (N, out_features)."""
        own: Tensor | None = self.bias
        bias = [None] * self.number if own is None else own.unbind()
        parts = zip(rows.split(list(counts)), self.weight.unbind(), bias, strict=True)
        return torch.cat([F.linear(part, weight, shift) for part, weight, shift in parts])

    def reset_parameters(self) -> None:
        if not _leave_empty.get():
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -1 / math.sqrt(self.in_features), 1 / math.sqrt(self.in_features))

    def extra_repr(self) -> str:
        return f"number={self.number}, {super().extra_repr()}"


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


@runtime_checkable
class HasAfterStep(Protocol):
    """A module that changes after each step of training: a model with a rule for its weights, which building calls too,
    or a part with numbers of its own that are no parameters."""

    def after_step(self) -> None: ...


@torch.no_grad()
def unit_norm(model: nn.Module) -> None:
    """Scale each weight vector to length 1, in place: w / |w|, along the axis that meets the stream (nGPT).

    Rows of tables and of layers that read, columns of layers that write into the stream, so that a matrix product is
    made of cosines (Loshchilov et al. 2024; here without its learned scales, which are a matter of the architecture).
    Biases, gains and what lies in no `nn.Linear` and no `nn.Embedding` stay as they are.
    """
    seen: set[int] = set()
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)) and id(module.weight) not in seen:
            seen.add(id(module.weight))
            weight: Tensor = module.weight
            writes = isinstance(module, Linear) and module.into_stream
            weight.div_(torch.linalg.vector_norm(weight, dim=-2 if writes else -1, keepdim=True).clamp(min=1e-12))
