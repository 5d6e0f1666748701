"""Probe `parameters`: what the variant costs, counted from the built thing on the meta device.

Parameters are unique tensors, so a tied head counts once. FLOPs are those of the matrix products that torch executes
(2 for each multiply-add), with full attention rows: a causal mask is not subtracted, as in the usual 6N + 12LdT.
"""

from __future__ import annotations

from collections import Counter

from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from gptlab.config import Config, ModelConfig
from gptlab.declare.reads import chosen
from gptlab.model import GPT, Model, skeleton
from gptlab.probes.groups import group_of
from gptlab.probes.memory import weight_bytes
from gptlab.probes.subject import Measurement, Subject
from gptlab.registry import register


@register("probe", "parameters", static=True)
def measure(subject: Subject) -> Measurement:
    """Parameters, bytes and FLOPs, counted on the meta device.

    Metrics: `parameters`, tied and untied, by part, MiB, FLOPs per token.
    """
    return Measurement(metrics=dict(count(subject.config)))


def count(config: Config) -> dict[str, float | int]:
    """Every count of a variant, by metric name. No weights are made, so size does not matter."""
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
    forward = forward_flops(model, config.model, context)
    counts["flops_forward_per_token"] = forward
    counts["flops_training_per_token"] = 3 * forward  # the backward pass makes two products for each of the forward's
    return counts


def group_sizes(model: nn.Module) -> Counter[str]:
    """Parameters by part of the model; they add up to the whole."""
    sizes: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        sizes[group_of(name)[1]] += parameter.numel()
    return sizes


def forward_flops(model: Model, config: ModelConfig, context: int) -> int:
    """FLOPs of one forward pass over `context` tokens, per token (for deep_mlp: per row). `model` is the skeleton."""
    model.requires_grad_(False)
    if not isinstance(model, GPT):
        return _executed(model, context)
    if config.layers or any("layer" in part.inputs for part in chosen(config)):
        return round(_executed(model, context) / context)
    # No part knows its layer, so the blocks cost the same. One pass over 96 of them would take a second.
    whole = model.trf_blocks
    model.trf_blocks = nn.Sequential()
    frame = _executed(model, context)
    model.trf_blocks = nn.Sequential(*list(whole)[:1])
    block = _executed(model, context) - frame
    model.trf_blocks = whole
    return round((frame + len(whole) * block) / context)


def _executed(model: Model, context: int) -> int:
    with FlopCounterMode(display=False) as counter:
        model(model.example_input(1, context))
    return counter.get_total_flops()
