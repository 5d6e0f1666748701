"""How a probe looks at a model without leaving a trace, and the points at which it looks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gptlab import streams
from gptlab.model import Model
from gptlab.model.branches import Branch


@contextmanager
def untouched(model: nn.Module, train: bool = False) -> Iterator[list[RemovableHandle]]:
    """Run the body with the model in eval (or train) mode; afterwards everything is as it was.

    Hooks that the body puts into the list are removed, gradients and buffers put back, each module's training flag
    too. Random numbers come from a stream of their own, so the global state stays where it is.
    """
    handles: list[RemovableHandle] = []
    modes = {module: module.training for module in model.modules()}
    gradients = {parameter: parameter.grad for parameter in model.parameters()}
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    for parameter in gradients:
        parameter.grad = None
    try:
        model.train(train)
        with streams.forked(0, "observing"):
            yield handles
    finally:
        for handle in handles:
            handle.remove()
        for module, mode in modes.items():
            module.training = mode
        for parameter, gradient in gradients.items():
            parameter.grad = gradient
        for buffer, before in buffers:
            if not torch.equal(buffer, before):
                buffer.copy_(before)


T = TypeVar("T")
Joined = Callable[[Branch, Tensor, Tensor, Tensor], None]


def on_join(model: Model, handles: list[RemovableHandle], tell: Joined) -> None:
    """Have `tell(branch, stream, branch output, new stream)` called whenever a branch joins the stream."""
    for shortcut, branches in in_turn((branch.shortcut, branch) for branch in model.branches()).items():
        turn = cycle(branches)
        handles.append(
            shortcut.register_forward_hook(
                lambda _, inputs, output, turn=turn: tell(next(turn), inputs[0], inputs[1], output)
            )
        )


def in_turn(named: Iterable[tuple[nn.Module, T]]) -> dict[nn.Module, list[T]]:
    """For each module what its calls in one pass stand for: its first call the first thing that it is named with, ...

    A module that the stream passes several times (`model.loops`) stands for another layer each time.
    """
    found: dict[nn.Module, list[T]] = {}
    for module, meaning in named:
        found.setdefault(module, []).append(meaning)
    return found
