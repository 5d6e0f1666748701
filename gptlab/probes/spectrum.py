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
from gptlab.model import Model
from gptlab.probes.groups import group_of
from gptlab.probes.hooks import untouched
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


def spectrum(model: Model, loss_of: Callable[[nn.Module, Batch], Tensor], batch: Batch) -> Polynomials:
    """The parts of every parameter's gradient, from a float64 copy; the model itself is not touched.

    A weight inside a branch counts the branches after its own. GptlabError where the copies do not fit into memory.
    """
    _refuse_too_large(model)
    model = copy.deepcopy(model).double()
    inputs = batch.inputs.double() if batch.inputs.is_floating_point() else batch.inputs
    targets = batch.targets.double() if batch.targets.is_floating_point() else batch.targets
    names, parameters = zip(*model.named_parameters(), strict=True)
    with untouched(model) as handles, torch.enable_grad():
        gate, n = _Gate(), sum(branch.joined for branch in model.branches())
        for shortcut in dict.fromkeys(branch.shortcut for branch in model.branches()):
            handles.append(shortcut.register_forward_pre_hook(gate))
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
    # Without the factor t of the branch that the parameter itself is in, and without degrees that no path has.
    places = _places(model, n)
    return {name: found[places[name][0] : sum(places[name]) + 1] for name, found in parts.items()}


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


def _places(model: Model, n: int) -> dict[str, tuple[bool, int]]:
    """Parameter -> (whether it is within a branch that meets a shortcut, how many of the `n` such come after it).

    A parameter that stands in several places, as a tied one, has the longest paths: (False, n), as what stands before
    all branches.
    """
    listed = model.branches()
    found: dict[int, tuple[bool, int]] = {}
    for at, branch in enumerate(listed):
        later = sum(o.joined for o in listed[at + 1 :] if o.layer > branch.layer or not o.beside)
        for modules, within in ((branch.inside, branch.joined), (branch.behind, False)):
            for key in {id(parameter) for module in modules for parameter in module.parameters()}:
                found.setdefault(key, (within, later))  # of a block that is passed again, the longest paths
    found |= {id(parameter): (False, 0) for module in model.after_layers() for parameter in module.parameters()}
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return {
        name: found.get(key, (False, n)) if len(known) == 1 else (False, n)
        for key, known in names.items()
        for name in known
    }


def _refuse_too_large(model: Model) -> None:
    copies = len(model.branches()) + 3
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
