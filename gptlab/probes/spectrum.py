"""The path spectrum: how much of a weight's gradient reached it through 0, 1, 2, ... later branches.

Multiply whatever flows back into a branch by t, in the backward pass only. Then dL/dW is a polynomial in t, whose k-th
coefficient is the sum over all paths that run through k branches. The passes at n + 1 values of t give the n + 1
coefficients. (The idea that a residual network is a sum of paths: Veit et al. 2016.)
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gptlab.data.batches import Batch
from gptlab.errors import GptlabError
from gptlab.probes.groups import group_of
from gptlab.probes.hooks import branches, untouched
from gptlab.probes.memory import physical_memory

Polynomials = dict[str, Tensor]  # parameter -> (degree + 1, *shape): the parts of its gradient, which add up to it


def rows(polynomials: Polynomials) -> list[dict[str, Any]]:
    """Tidy rows `path_share/k`: mean |part through k later branches| over mean |gradient|. Parts may cancel."""
    grouped: dict[tuple[int | None, str], list[Tensor]] = {}
    for name, parts in polynomials.items():
        layer, group = group_of(name)
        grouped.setdefault((layer, group), []).append(parts.flatten(1))
        if layer is not None:
            grouped.setdefault((layer, "all"), []).append(parts.flatten(1))
    found = []
    for (layer, part), members in grouped.items():
        longest = max(len(member) for member in members)
        members = [nn.functional.pad(member, (0, 0, 0, longest - len(member))) for member in members]
        together = torch.cat(members, dim=1)
        total = together.sum(0).abs().mean().item()
        if not total:
            continue
        for k, share in enumerate((together.abs().mean(1) / total).tolist()):
            row = {"step": 0, "layer": layer, "part": part, "metric": f"path_share/{k}", "value": share}
            found.append(row)
    return found


def spectrum(model: nn.Module, loss_of: Callable[[nn.Module, Batch], Tensor], batch: Batch) -> Polynomials:
    """The parts of every parameter's gradient, from a float64 copy; the model itself is not touched.

    A weight inside a branch counts the branches after its own. GptlabError where the copies do not fit into memory.
    """
    _refuse_too_large(model)
    model = copy.deepcopy(model).double()
    inputs = batch.inputs.double() if batch.inputs.is_floating_point() else batch.inputs
    targets = batch.targets.double() if batch.targets.is_floating_point() else batch.targets
    names, parameters = zip(*model.named_parameters(), strict=True)
    with untouched(model) as handles, torch.enable_grad():
        gate, n = _Gate(), len(_with_shortcut(model))
        for branch in branches(model):
            handles.append(branch.shortcut.register_forward_pre_hook(gate))
        loss = loss_of(model, Batch(inputs, targets))
        ts = [math.cos(math.pi * (2 * i + 1) / (2 * n + 2)) for i in range(n + 1)]  # Chebyshev: well conditioned
        solve = torch.linalg.inv(torch.vander(torch.tensor(ts, dtype=torch.float64), increasing=True))
        parts: Polynomials = {}
        for i, t in enumerate(ts):
            gate.t = t
            gradients = torch.autograd.grad(loss, parameters, retain_graph=i < n, allow_unused=True)
            for name, gradient in zip(names, gradients, strict=True):
                if gradient is not None:
                    weights = solve[:, i].view(-1, *[1] * gradient.dim())
                    parts[name] = parts.get(name, 0) + weights * gradient
    return {name: _later_only(model, name, found) for name, found in parts.items()}


class _Gate:
    """Pre-hook of a shortcut: what flows back into the branch is multiplied by `t`, as it stands at that moment."""

    t = 1.0

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        stream, branch, *rest = inputs
        if not branch.requires_grad:
            return inputs
        branch = branch.view_as(branch)
        branch.register_hook(lambda gradient: gradient * self.t)
        return (stream, branch, *rest)


def _with_shortcut(model: nn.Module) -> list[int]:
    """Layer of each branch whose output meets a shortcut; in `deep_mlp`, one where width in and out are equal."""
    found = []
    for branch in branches(model):
        first = next(branch.entry.parameters(), None) if branch.part == "all" else None
        if first is None or first.shape[0] == first.shape[1]:
            found.append(branch.layer)
    return found


def _later_only(model: Any, name: str, parts: Tensor) -> Tensor:
    """Without the factor t of the branch that the parameter itself is in, and without degrees that no path has."""
    first, *rest = name.split(".")
    gated = _with_shortcut(model)
    if first == "layers":
        inside, later = int(rest[0]) in gated, sum(layer > int(rest[0]) for layer in gated)
    elif first == "trf_blocks":
        layer, block = int(rest[0]), model.trf_blocks[int(rest[0])]
        # A norm on the stream itself (post) and a shortcut's own scale stand behind the branch, not in it.
        inside = not rest[1].startswith("shortcut") and not (block.norm_after and rest[1] in ("norm1", "norm2"))
        attention_side = rest[1] in ("att", "norm1", "norm1_output", "shortcut_att")
        follows = attention_side and not block.parallel and block.att is not None and block.ff is not None
        later = sum(other > layer for other in gated) + follows
    else:
        inside, later = False, 0 if first in ("final_norm", "out_head") else len(gated)
    return parts[inside : inside + later + 1]


def _refuse_too_large(model: nn.Module) -> None:
    copies = len(branches(model)) + 3
    needed, present = 8 * copies * sum(parameter.numel() for parameter in model.parameters()), physical_memory()
    if present and needed > present:
        raise GptlabError(
            f"probes.gradients.paths=true: {copies} float64 copies of the weights need {needed / 2**30:,.0f} GiB, this "
            f"machine has {present / 2**30:,.0f} GiB. Use a smaller model.",
            code="paths-memory",
            key="probes.gradients.paths",
            value="true",
            copies=copies,
        )
