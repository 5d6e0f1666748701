"""Probe `parameters`: what the variant costs, counted from the built thing on the meta device.

Parameters are unique tensors, so a tied head counts once. FLOPs are those of the matrix products that torch executes
(2 for each multiply-add), part by part. The convention for attention: every token meets as many others as its window
holds, all of the context where it has none, and the causal half is *not* taken off, as in the usual 6N + 12LdT. The
second number, `flops_visible_per_token`, counts only the pairs of tokens that the mask lets through.

A part may count itself, where torch cannot see what it does or where it needs values:

    def flops(self, tokens: int) -> int:                       # of one row of `tokens` tokens; its output has
        ...                                                    # the shape of its first input
    def masked_flops(self, tokens: int) -> tuple[int, int]:    # of what is executed, what the mask makes vain:
        ...                                                    # beyond the window, and the rest (the causal half)

A part that can be counted in neither way leaves a missing number, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from gptlab.config import Config, ModelConfig
from gptlab.declare.keys_read import chosen
from gptlab.model import GPT, Model, skeleton
from gptlab.probes.dry_run import UncountableError, dry_run
from gptlab.probes.groups import group_of
from gptlab.probes.memory import weight_bytes
from gptlab.probes.subject import Measurement, Subject
from gptlab.registry import register

FLOPS = ("flops_forward_per_token", "flops_visible_per_token", "flops_training_per_token")


@dataclass(frozen=True)
class Counts:
    """Metric -> number, and metric -> why it cannot be had."""

    numbers: dict[str, float | int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Flops:
    """Of one forward pass over a row of tokens: `forward` by the convention, `visible` through the mask alone."""

    forward: float
    visible: float


@register("probe", "parameters", static=True)
def measure(subject: Subject) -> Measurement:
    """Parameters, bytes and FLOPs, counted on the meta device.

    Metrics: `parameters`, tied and untied, by part, MiB, FLOPs per token.
    """
    counts = counted(subject.config)
    notes = [f"{', '.join(names)}: not counted, because {why}" for why, names in reasons(counts.missing).items()]
    return Measurement(metrics=counts.numbers, notes=notes)


def count(config: Config) -> dict[str, float | int]:
    """Every count of a variant that can be had, by metric name. No weights are made, so size does not matter."""
    return counted(config).numbers


def counted(config: Config) -> Counts:
    """The same, with what cannot be had, and why."""
    model = skeleton(config.model)
    groups = group_sizes(model)
    total = sum(parameter.numel() for parameter in model.parameters())
    assert sum(groups.values()) == total, (groups, total)
    counts: dict[str, float | int] = {"parameters": total}
    head = getattr(model, "out_head", None)
    if head is not None:
        counts["parameters_tied"] = total if config.model.tie_weights else total - head.weight.numel()
        counts["parameters_untied"] = total + head.weight.numel() if config.model.tie_weights else total
    counts |= {f"parameters/{group}": size for group, size in groups.items()}
    counts["mib"] = weight_bytes(model) / 2**20
    probe = config.probes.parameters
    context = (probe.context if probe else None) or config.model.context_length
    try:
        flops = flops_per_token(model, config.model, context)
    except UncountableError as error:
        return Counts(counts, dict.fromkeys(FLOPS, str(error)))
    # The backward pass makes two products for each of the forward's.
    values = (round(flops.forward), round(flops.visible), 3 * round(flops.forward))
    return Counts(counts | dict(zip(FLOPS, values, strict=True)))


def reasons(missing: Mapping[str, str]) -> dict[str, list[str]]:
    """Why -> the metrics that are missing for it."""
    found: dict[str, list[str]] = {}
    for name, why in missing.items():
        found.setdefault(why, []).append(name)
    return found


def block_sizes(config: ModelConfig) -> dict[str, int]:
    """Parameters of the first block by part, exactly: `attention`, `feed_forward`, `norm`, ..."""
    sizes: Counter[str] = Counter()
    for name, parameter in skeleton(config).named_parameters():
        layer, group = group_of(name)
        if layer == 0:
            sizes[group] += parameter.numel()
    return dict(sizes)


def group_sizes(model: nn.Module) -> Counter[str]:
    """Parameters by part of the model; they add up to the whole."""
    sizes: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        sizes[group_of(name)[1]] += parameter.numel()
    return sizes


def flops_per_token(model: Model, config: ModelConfig, context: int) -> Flops:
    """FLOPs of one forward pass over `context` tokens, per token (for deep_mlp: of a row). `model` is the skeleton.

    UncountableError where a part cannot be counted.
    """
    model.requires_grad_(False)
    if not isinstance(model, GPT):
        return _executed(model, context)
    # gptlab's own layouts take the number of their layer for a scale, which costs nothing.
    own = "gptlab.model.layouts"
    if config.layers or config.pattern or any("layer" in part.inputs and part.module != own for part in chosen(config)):
        whole = _executed(model, context)
        return Flops(whole.forward / context, whole.visible / context)
    # No part knows its layer, so the blocks cost the same. One pass over 96 of them would take a second.
    blocks = model.trf_blocks
    one, none = nn.ModuleList(list(blocks)[:1]), nn.ModuleList()
    try:
        model.trf_blocks = none
        frame = _executed(model, context)
        model.trf_blocks = one
        first = _executed(model, context)
    finally:
        model.trf_blocks = blocks
    forward, visible = (
        (outside + len(blocks) * (inside - outside)) / context
        for outside, inside in ((frame.forward, first.forward), (frame.visible, first.visible))
    )
    return Flops(forward, visible)


def _executed(model: Model, context: int) -> Flops:
    """Of one row: what torch executes and what parts say of themselves, less what masks make vain."""
    itself = [module for module in model.modules() if _method(module, "flops")]
    with _standing_in(itself), FlopCounterMode(display=False) as counter:
        dry_run(model, 1, context)
    total = counter.get_total_flops() + sum(_method(module, "flops")(context) for module in itself)
    inside = {part for module in itself for part in module.modules()}
    masks = [_method(m, "masked_flops") for m in model.modules() if m not in inside or m in itself]
    vain = [masked(context) for masked in masks if masked]
    beyond, rest = sum(a for a, _ in vain), sum(b for _, b in vain)
    return Flops(total - beyond, total - beyond - rest)


def _method(module: nn.Module, name: str) -> Any:
    return getattr(module, name, None)


@contextmanager
def _standing_in(modules: list[nn.Module]) -> Iterator[None]:
    """Parts that count themselves are not computed: each gives an empty tensor like its first input."""
    for module in modules:
        module.forward = lambda x, *_, **__: torch.empty_like(x)
    try:
        yield
    finally:
        for module in modules:
            del module.forward
