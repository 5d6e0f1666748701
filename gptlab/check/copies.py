"""Checks on what must survive: ties, checkpoints, counts, seeds, and the random numbers of everybody else."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gptlab.check.case import Case, largest_gap, same
from gptlab.check.report import Verdict, failed, not_applicable, passed
from gptlab.model import Model, skeleton
from gptlab.probes.dry_run import UncountableError, dry_run
from gptlab.probes.parameters import group_sizes


def ties(case: Case) -> Verdict:
    """What shares memory still shares it after .to(), deepcopy and loading a checkpoint."""
    shared, declared = shared_memory(case.model), case.config.model.tie_weights and case.is_gpt
    tie = {"tok_emb.weight", "out_head.weight"}
    if declared and not any(tie <= group for group in shared):
        return failed("model.tie_weights=true, and embedding and head have separate weights")
    if not shared:
        return not_applicable("no weights are shared")
    moved = copy.deepcopy(case.model)
    if shared_memory(moved) != shared:
        return failed(f"deepcopy breaks {_say(shared, moved)}")
    moved.to(torch.bfloat16)
    if shared_memory(moved) != shared:
        return failed(f".to(torch.bfloat16) breaks {_say(shared, moved)}")
    fresh = case.with_seed(case.config.seed + 1)
    fresh.load_state_dict(case.model.state_dict())
    if shared_memory(fresh) != shared:
        return failed(f"load_state_dict breaks {_say(shared, fresh)}")
    said = "; ".join(" = ".join(sorted(group)) for group in shared)
    return passed(f"{said}: kept by deepcopy, .to() and load_state_dict", len(shared))


def state_dict(case: Case) -> Verdict:
    """A model from another seed that loads this one's checkpoint gives the same output, bit for bit."""
    fresh = case.with_seed(case.config.seed + 1)
    try:
        fresh.load_state_dict(case.model.state_dict(), strict=True)
    except RuntimeError as error:
        return failed(f"cannot be loaded again: {' '.join(str(error).split())}")
    inputs = case.example(2, case.short)
    one, two = case.output(inputs), case.output(inputs, model=fresh)
    if not same(one, two):
        gap = largest_gap(one, two)
        return failed(f"after loading, outputs differ by {gap:.3g}: something that matters is not saved", gap)
    return passed(f"{len(case.model.state_dict())} tensors bring back the same bits", 0.0)


def counts(case: Case) -> Verdict:
    """What is counted on the meta device, without weights, is what is built; parts add up."""
    model, bare = case.model, skeleton(case.config.model)
    uncounted = _cannot_run_bare(bare, case.short)
    real = {name: tuple(p.shape) for name, p in model.named_parameters()}
    planned = {name: tuple(p.shape) for name, p in bare.named_parameters()}
    if real != planned:
        odd = sorted(name for name in real.keys() | planned.keys() if real.get(name) != planned.get(name))[0]
        return failed(f"{odd}: {planned.get(odd)} when counted, {real.get(odd)} when built")
    total, groups = sum(p.numel() for p in model.parameters()), group_sizes(bare)
    if sum(groups.values()) != total:
        return failed(f"built {total:,} parameters, counted by part {sum(groups.values()):,}", total)
    said = f"{total:,} parameters, counted and built; {len(groups)} parts add up"
    return passed(f"{said}; {uncounted}" if uncounted else said, total)


def _cannot_run_bare(bare: Model, length: int) -> str:
    """Why shapes and FLOPs, which are traced on the meta device, cannot be counted there; empty where they can."""
    try:
        dry_run(bare.requires_grad_(False), 2, length)
    except UncountableError as error:
        return f"no FLOPs: {error}"
    return ""


def seed(case: Case) -> Verdict:
    """One seed gives one set of weights; another seed gives another."""
    ours, twin = case.model.state_dict(), case.with_seed(case.config.seed).state_dict()
    if ours.keys() != twin.keys():
        return failed("the same seed gives other tensors")
    odd = [name for name, value in ours.items() if not same(value, twin[name])]
    if odd:
        return failed(f"the same seed gives other values: {odd[0]}", len(odd))
    if not any(p.numel() for p in case.model.parameters()):
        return not_applicable("no parameters to draw")
    other = case.with_seed(case.config.seed + 1).state_dict()
    moved = sum(not same(value, other[name]) for name, value in ours.items())
    if not moved:
        return failed("another seed gives the same weights")
    return passed(f"same seed, same bits; another seed changes {moved} of {len(ours)} tensors", moved)


def global_random_state(case: Case) -> Verdict:
    """Building and a pass in eval mode leave the global generators of torch, Python and numpy alone."""
    states: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
        "torch": (torch.get_rng_state, torch.set_rng_state),
        "random": (random.getstate, random.setstate),
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states["numpy"] = (lambda: numpy.random.get_state(legacy=True), numpy.random.set_state)
    before = {name: get() for name, (get, _) in states.items()}
    moved: list[str] = []
    inputs = case.example(2, case.short)
    try:
        for what, act in (
            ("building", lambda: case.with_seed(case.config.seed)),
            ("a pass", lambda: _plain_pass(case, inputs)),
        ):
            act()
            changed = [name for name, (get, _) in states.items() if not _equal(before[name], get())]
            moved += [f"{what} moves that of {name}" for name in changed]
            for name, (_, put) in states.items():
                put(before[name])
    finally:
        for name, (_, put) in states.items():
            put(before[name])
    return failed("; ".join(moved)) if moved else passed(f"untouched: {', '.join(states)}")


def _plain_pass(case: Case, inputs: torch.Tensor) -> None:
    with torch.no_grad():
        case.model(inputs)


def shared_memory(model: nn.Module) -> list[frozenset[str]]:
    """Groups of names that stand for the same memory, each with a parameter in it."""
    groups: dict[int, set[str]] = {}
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, tensor in [*parameters.items(), *model.named_buffers(remove_duplicate=False)]:
        if tensor.numel():
            groups.setdefault(tensor.untyped_storage().data_ptr(), set()).add(name)
    found = [frozenset(names) for names in groups.values() if len(names) > 1 and names & parameters.keys()]
    return sorted(found, key=sorted)


def _say(shared: list[frozenset[str]], model: nn.Module) -> str:
    lost = next((group for group in shared if group not in shared_memory(model)), frozenset({"nothing"}))
    return " = ".join(sorted(lost))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    same_values = a == b
    return bool(same_values.all()) if hasattr(same_values, "all") else bool(same_values)
