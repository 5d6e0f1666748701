"""How a probe looks at a model without leaving a trace, and the points at which it looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gptlab import streams


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


@dataclass(frozen=True)
class Branch:
    """One branch of the model: where its input comes in, and the shortcut that joins its output to the stream.

    `part` is `attention` or `feed_forward`; in `deep_mlp`, whose layers have one branch each, it is `all`.
    `stream_scale` is what the stream is multiplied with before it reaches the shortcut (DeepNorm).
    `beside` says that the branch reads what the branch before it read (parallel layout).
    """

    layer: int
    part: str
    entry: nn.Module
    shortcut: nn.Module
    stream_scale: float = 1.0
    beside: bool = False


def branches(model: Any) -> list[Branch]:
    """All branches in the order in which the stream meets them."""
    found: list[Branch] = []
    if not hasattr(model, "trf_blocks"):
        return [Branch(i, "all", layer, model.shortcuts[i]) for i, layer in enumerate(model.layers)]
    for i, block in enumerate(model.trf_blocks):
        places = (("attention", block.att, block.norm1), ("feed_forward", block.ff, block.norm2))
        for part, inner, norm in places:
            if inner is None:
                continue
            shortcut = block.shortcut_att if part == "attention" else block.shortcut_ff
            beside = block.parallel and part == "feed_forward"
            entry = inner if block.norm_after else block.norm1 if block.parallel else norm
            found.append(Branch(i, part, entry, shortcut, 1.0 if beside else block.stream_scale, beside))
    return found


Joined = Callable[[Branch, Tensor, Tensor, Tensor], None]


def on_join(model: nn.Module, handles: list[RemovableHandle], tell: Joined) -> None:
    """Have `tell(branch, stream, branch output, new stream)` called whenever a branch joins the stream."""
    for branch in branches(model):
        handles.append(
            branch.shortcut.register_forward_hook(
                lambda _, inputs, output, branch=branch: tell(branch, inputs[0], inputs[1], output)
            )
        )
