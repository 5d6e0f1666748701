"""Probe `parameters`: what the variant costs, counted from the built thing on the meta device.

Parameters are unique tensors, so a tied head counts once. FLOPs are those of the matrix products that torch executes
(2 for each multiply-add), part by part. The convention for attention: every token meets as many others as its window
holds, all of the context where it has none, and the causal half is *not* taken off, as in the usual 6N + 12LdT. The
second number, `flops_visible_per_token`, counts only the pairs of tokens that the mask lets through.

A part may say its own FLOPs, or what its mask makes vain (`gptlab.model.counting`). One that can be counted in neither
way leaves a missing number, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn

from gptlab.config import Config, ModelConfig
from gptlab.declare.keys_read import chosen
from gptlab.model import GPT, Model, skeleton
from gptlab.model.counting import HasIdle
from gptlab.probes.dry_run import UncountableError
from gptlab.probes.flop_meter import Spent, metered
from gptlab.probes.groups import group_of
from gptlab.probes.memory import weight_bytes
from gptlab.probes.subject import Measurement, Subject
from gptlab.registry import Component, register

FLOPS = ("flops_forward_per_token", "flops_visible_per_token", "flops_training_per_token")


@dataclass(frozen=True)
class Flops:
    """Of a forward pass: `forward` by the convention, `visible` through the mask alone.

    `parts` and `first_block`: part -> its share of `forward`, in the whole model and in its first block. Parts are
    named as those of the parameters are; what a block or the model computes outside of them is `block` and `model`.
    """

    forward: float
    visible: float
    parts: dict[str, float] = field(default_factory=dict)
    first_block: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Counts:
    """Metric -> number, and metric -> why it cannot be had."""

    numbers: dict[str, float | int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    flops: Flops | None = None  # per token; None where they cannot be had


@register("probe", "parameters", static=True)
def measure(subject: Subject) -> Measurement:
    """Parameters, bytes and FLOPs, counted on the meta device.

    Metrics: `parameters`, tied and untied, those that a token meets (where it does not meet all), by part, MiB, FLOPs
    per token.
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
    if idle := idle_parameters(model):
        counts["parameters_active"] = total - idle
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
    return Counts(counts | dict(zip(FLOPS, values, strict=True)), flops=flops)


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


def idle_parameters(model: nn.Module) -> int:
    """Those that a token passes by, as the parts say that have such."""
    return sum(module.idle_parameters() for module in model.modules() if isinstance(module, HasIdle))


def flops_per_token(model: Model, config: ModelConfig, context: int) -> Flops:
    """FLOPs of one forward pass over `context` tokens, per token (for deep_mlp: of a row). `model` is the skeleton.

    UncountableError where a part cannot be counted.
    """
    model.requires_grad_(False)
    if not isinstance(model, GPT):
        return _sum(metered(model, context), 1)
    if config.layers or config.pattern or any(_costs_by_layer(part) for part in chosen(config)):
        return _sum(metered(model, context), context)
    # No part knows its layer, so the blocks cost the same, and one stands for all: 96 would take a second.
    blocks = model.trf_blocks
    try:
        model.trf_blocks = nn.ModuleList(list(blocks)[:1])
        spent = metered(model, context)
    finally:
        model.trf_blocks = blocks
    return _sum(spent, context, len(blocks))


def _costs_by_layer(part: Component) -> bool:
    """Whether a part takes the number of its layer for more than what costs no products: a scale, a mix."""
    free = ("gptlab.model.layouts", "gptlab.model.attention", "gptlab.model.across_layers.skips")
    return "layer" in part.inputs and part.module not in free


def _sum(spent: Spent, tokens: int, copies: int = 1) -> Flops:
    """The totals of a pass, per token, where each block that was passed stands for `copies` of its kind."""
    parts: Counter[str] = Counter()
    first: Counter[str] = Counter()
    vain = 0
    for (layer, part), cost in spent.items():
        times = 1 if layer is None else copies
        parts[part] += times * cost.forward
        vain += times * cost.masked
        if layer == 0:
            first[part] += cost.forward
    forward = parts.total()
    each, of_first = ({part: cost / tokens for part, cost in found.items() if cost} for found in (parts, first))
    return Flops(forward / tokens, (forward - vain) / tokens, each, of_first)
