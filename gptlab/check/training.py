"""Checks on a few steps of training: every weight moves, every expert is used, auxiliary losses say something."""

from __future__ import annotations

import copy
import dataclasses
import math

import torch
from torch import Tensor, nn

from gptlab.check.case import Case, same
from gptlab.check.report import Verdict, failed, not_applicable, passed
from gptlab.model import GPT, learning_rate_scales
from gptlab.probes.hooks import untouched
from gptlab.training.optimizer import Updates

STEPS = 4
BATCHES = 8  # over which an expert has to be chosen at least once


def moves(case: Case) -> Verdict:
    """A parameter that has a gradient has another value after a few steps, and still has it after the next pass."""
    model = copy.deepcopy(case.model)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    train = dataclasses.replace(case.config.train, budget=None)
    updates = Updates(model, train, learning_rate_scales(model, case.config.model))
    wanted: set[str] = set()
    with torch.enable_grad():
        for step in range(STEPS):
            case.loss(model, case.example(2, case.short, f"step {step}")).backward()
            gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
            if not all(gradient.isfinite().all() for gradient in gradients.values()):
                return not_applicable("the gradients are not finite")
            wanted |= {name for name, gradient in gradients.items() if gradient.any()}
            updates.clip()
            updates.set_rate(1.0)
            updates.step()
    with torch.no_grad():
        model(case.example(2, case.short))
    still = [name for name, p in model.named_parameters() if name in wanted and same(p.detach(), before[name])]
    if still:
        return failed(f"has a gradient, and is after {STEPS} steps where it was: {_some(still)}", len(still))
    return passed(f"{len(wanted)} tensors have moved after {STEPS} steps", len(wanted))


def experts(case: Case) -> Verdict:
    """Of weights that are stacked, one slice for each expert (or head), every slice is reached by some token."""
    stacked = {name: p for name, p in case.model.named_parameters() if p.dim() >= 3 and len(p) > 1}
    if not stacked:
        return not_applicable("no weights are stacked")
    reached = {name: torch.zeros(len(p), dtype=torch.bool) for name, p in stacked.items()}
    with untouched(case.model), torch.enable_grad():
        for number in range(BATCHES):
            case.loss(case.model, case.example(2, case.short, f"experts {number}")).backward()
        for name, parameter in stacked.items():
            if parameter.grad is not None:
                reached[name] = parameter.grad.flatten(1).any(1)
    for name, found in reached.items():
        if found.any() and not found.all():  # none at all: another line says so
            idle = [str(i) for i in (~found).nonzero()[:, 0].tolist()]
            return failed(f"{name}: no token of {BATCHES} batches reaches {_some(idle)} of {len(found)}", len(idle))
    return passed(f"every slice of {len(stacked)} stacked tensors is reached", len(stacked))


def auxiliary_losses(case: Case) -> Verdict:
    """Each is finite, not zero for every batch, and has a gradient: else it teaches nothing."""
    if not isinstance(case.model, GPT):
        return not_applicable("architecture=deep_mlp has none")
    sizes: dict[str, float] = {}
    taught: set[str] = set()
    with untouched(case.model), torch.enable_grad():
        for number in range(BATCHES):
            for name, loss in case.model.run(case.example(2, case.short, f"auxiliary {number}")).losses.items():
                if loss.dim():
                    return failed(f"{name} has the shape {tuple(loss.shape)}: it must be one number")
                sizes[name] = max(sizes.get(name, 0.0), abs(loss.item()), key=lambda x: math.inf if x != x else x)
                if _has_gradient(case.model, loss):
                    taught.add(name)
    if not sizes:
        return not_applicable("there are none")
    for name, size in sizes.items():
        if not math.isfinite(size):
            return failed(f"{name} is not finite")
        if size == 0:
            return failed(f"{name} is zero for {BATCHES} different batches", 0.0)
        if name not in taught:
            return failed(f"{name} has no gradient: training cannot lower it")
    said = ", ".join(f"{name} up to {size:.3g}" for name, size in sizes.items())
    return passed(said, max(sizes.values()))


def _has_gradient(model: nn.Module, loss: Tensor) -> bool:
    if not loss.requires_grad:
        return False
    gradients = torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)
    return any(bool(gradient.any()) for gradient in gradients)


def _some(names: list[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
