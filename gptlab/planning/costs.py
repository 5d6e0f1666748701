"""What a variant would cost, before it runs: counts, memory, and what its training would spend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gptlab.config import Config

MIB = 2**20


def cost(config: Config) -> dict[str, Any]:
    """Counts of one variant by metric name, and

    `block`     parameters of its first block by part, exactly
    `flops_by_part`, `block_flops`  forward FLOPs per token by part, of the model and of its first block; null where
                they cannot be had
    `peak_mib`  what the gradient probe and the training, where there are any, need at their peak
    `steps`, `tokens`, `training_flops`  what a training is going to spend
    `missing`   name -> why the number cannot be had; it is null then
    """
    from gptlab.probes.parameters import block_sizes, counted

    counts = counted(config)
    found: dict[str, Any] = {**counts.numbers, **dict.fromkeys(counts.missing), "block": block_sizes(config.model)}
    found["flops_by_part"] = found["block_flops"] = None
    if counts.flops:
        sized = [name.removeprefix("parameters/") for name in counts.numbers if name.startswith("parameters/")]
        tokens = config.model.architecture == "gpt"  # the layers of deep_mlp are told apart by weights and biases
        found["flops_by_part"] = _exactly(counts.flops.parts, sized if tokens else ())
        found["block_flops"] = _exactly(counts.flops.first_block, found["block"] if tokens else ())
    missing = dict(counts.missing)
    found["peak_mib"], why = _peak(config)
    if why:
        missing["peak_mib"] = why
    if config.train.budget is not None:
        from gptlab.training.budget import Budget

        budget = Budget.of(config)
        if (steps := budget.steps) is not None:
            found["steps"], found["tokens"] = steps, steps * budget.tokens_per_step
            found["training_flops"] = None if budget.uncounted else steps * budget.flops_per_step
            if budget.uncounted:
                missing["training_flops"] = budget.uncounted
    return found | {"missing": missing}


def _exactly(parts: Mapping[str, float], names: Iterable[str]) -> dict[str, float | int]:
    """By part, those of `names` too that cost nothing. Whole but where a window leaves a fraction for each token."""
    known = dict.fromkeys(names, 0.0) | dict(parts)
    return {part: int(value) if value == int(value) else value for part, value in known.items()}


def _peak(config: Config) -> tuple[float | None, str]:
    """(MiB, or None where nothing needs any or it cannot be told; why it cannot be told)."""
    from gptlab.probes.dry_run import UncountableError
    from gptlab.probes.shapes import memory_estimate

    peaks = []
    probe = config.probes.gradients
    try:
        if probe and probe.context:
            peaks.append(memory_estimate(config.model, probe.batch_size, probe.context)[1])
        if config.train.budget is not None:
            from gptlab.training.memory import peak_bytes

            peaks.append(peak_bytes(config))
    except UncountableError as error:
        return None, str(error)
    return (max(peaks) / MIB if peaks else None), ""
