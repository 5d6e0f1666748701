"""How much of the gradient of the stream comes straight through the shortcut, and how much through the branch.

Where the stream x splits, dL/dx = (what comes back through the shortcut) + (what comes back through the branch): an
exact sum. A block as a whole is split the same way: what takes the shortcuts of both its branches, and the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gptlab.model import Model
from gptlab.model.branches import Branch
from gptlab.probes.hooks import in_turn, untouched
from gptlab.probes.subject import l2_norm


@dataclass(frozen=True)
class Split:
    """Gradients of the loss with respect to the stream where a branch, or a block (`part` = all), begins."""

    layer: int
    part: str
    total: Tensor
    shortcut: Tensor
    branch: Tensor


@dataclass
class Junction:
    """The tensors at one branching of the stream; `via_...` are aliases that see one of the two ways alone."""

    stream: Tensor
    via_branch: Tensor
    via_shortcut: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        return [t for t in (self.stream, self.via_branch, self.via_shortcut) if t is not None]


def rows(splits: list[Split]) -> list[dict[str, Any]]:
    """Tidy rows: the three norms, and the cosine between the two parts (-1: they cancel)."""
    found = []
    for split in splits:
        values = {
            "grad_stream_norm": l2_norm(split.total),
            "grad_shortcut_norm": l2_norm(split.shortcut),
            "grad_branch_norm": l2_norm(split.branch),
        }
        if values["grad_shortcut_norm"] and values["grad_branch_norm"]:
            cosine = torch.nn.functional.cosine_similarity(split.shortcut.flatten(), split.branch.flatten(), dim=0)
            values["grad_split_cosine"] = cosine.item()
        where = {"step": 0, "layer": split.layer, "part": split.part}
        found += [{**where, "metric": metric, "value": value} for metric, value in values.items()]
    return found


def split(model: Model, loss_of: Callable[[], Tensor]) -> list[Split]:
    """The splits of every branch and block for one loss. `loss_of` runs the model; what it feeds in needs a gradient.

    The model is left as it was: no gradient reaches its parameters.
    """
    with untouched(model) as handles, torch.enable_grad():
        junctions = watched(model, handles)
        loss = loss_of()
        wanted = [tensor for junction in junctions.values() for tensor in junction.tensors()]
        if not wanted:
            return []
        grads = torch.autograd.grad(loss, wanted, retain_graph=True, materialize_grads=True)
        return solved(junctions, {id(tensor): gradient for tensor, gradient in zip(wanted, grads, strict=True)})


def watched(model: Model, handles: list[RemovableHandle], *, retain: bool = False) -> dict[Branch, Junction]:
    """The junctions that the next pass of `model` will fill, for as long as the hooks in `handles` are there.

    What flows is the same, bit for bit. `retain`: a backward pass leaves the gradient of each of their tensors there.
    """
    junctions: dict[Branch, Junction] = {}
    waiting: dict[nn.Module, list[Branch]] = {}
    for branch in model.branches():
        waiting.setdefault(branch.entry, []).append(branch)

    def seen(tensor: Tensor) -> Tensor:
        if retain:
            tensor.retain_grad()
        return tensor

    def enter(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        # In a parallel block one norm is the entry of two branches, and is called once for each.
        branch = next((b for b in waiting[module] if b not in junctions), None)
        if branch is None:
            return inputs  # a second call in the same forward pass is not a branching of the stream
        alias = seen(inputs[0].view_as(inputs[0]))
        junctions[branch] = Junction(seen(inputs[0]), alias)
        return (alias, *inputs[1:])

    def join(turn: Iterator[Branch], inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        alias = seen(inputs[0].view_as(inputs[0]))
        junctions[next(turn)].via_shortcut = alias
        return (alias, *inputs[1:])

    for module in waiting:
        handles.append(module.register_forward_pre_hook(enter))
    for shortcut, branches in in_turn((branch.shortcut, branch) for branch in model.branches()).items():
        turn = cycle(branches)
        handles.append(shortcut.register_forward_pre_hook(lambda _, inputs, turn=turn: join(turn, inputs)))
    return junctions


def retained(junctions: Mapping[Branch, Junction]) -> dict[int, Tensor | None]:
    """Tensor's id -> the gradient that a backward pass has left at it, for the tensors of all junctions."""
    return {id(tensor): tensor.grad for junction in junctions.values() for tensor in junction.tensors()}


def solved(junctions: Mapping[Branch, Junction], by_tensor: Mapping[int, Tensor | None]) -> list[Split]:
    """The splits, from the gradient of each tensor, by its id; None for one that the loss does not depend on."""

    def gradient(tensor: Tensor | None, like: Tensor) -> Tensor:
        found = None if tensor is None else by_tensor[id(tensor)]
        return torch.zeros_like(like) if found is None else found

    found: list[Split] = []
    for block in _by_block(junctions):
        lead, first = block[0]
        total = gradient(first.stream, first.stream)
        bypass = lead.stream_scale * gradient(first.via_shortcut, first.stream)
        through = [gradient(junction.via_branch, junction.stream) for _, junction in block]
        rest = sum(through[1:], through[0])  # of branches side by side, or of one alone
        if lead.part != "all":
            for (branch, junction), way in zip(block, through, strict=True):
                straight = branch.stream_scale * gradient(junction.via_shortcut, junction.stream)
                whole = gradient(junction.stream, junction.stream)
                found.append(Split(branch.layer, branch.part, whole, bypass if branch.beside else straight, way))
        branch, last = block[-1]
        if len(block) > 1 and not branch.beside:
            # One after the other: what takes the second shortcut goes on through the first one.
            passing = branch.stream_scale * gradient(last.via_shortcut, last.stream)
            bypass = lead.stream_scale * _passed_on(last.stream, first, passing)
            rest = total - bypass
        found.append(Split(lead.layer, "all", total, bypass, rest))
    return found


def _passed_on(stream: Tensor, before: Junction, gradient: Tensor) -> Tensor:
    """`gradient` of `stream`, taken back through the shortcut of the junction before it."""
    if before.via_shortcut is None:
        return torch.zeros_like(before.stream)
    (found,) = torch.autograd.grad(stream, before.via_shortcut, gradient, retain_graph=True, materialize_grads=True)
    return found


def _by_block(junctions: Mapping[Branch, Junction]) -> list[list[tuple[Branch, Junction]]]:
    blocks: dict[int, list[tuple[Branch, Junction]]] = {}
    for branch, junction in junctions.items():
        blocks.setdefault(branch.layer, []).append((branch, junction))
    return list(blocks.values())
