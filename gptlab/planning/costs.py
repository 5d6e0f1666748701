"""What a variant would cost, before it runs: counts, memory, and what its training would spend."""

from __future__ import annotations

from typing import Any

from gptlab.config import Config

MIB = 2**20


def cost(config: Config) -> dict[str, Any]:
    """Counts of one variant by metric name, and

    `block`     parameters of its first block by part, exactly
    `peak_mib`  what the gradient probe and the training, where there are any, need at their peak
    `steps`, `tokens`, `training_flops`  what a training is going to spend
    `missing`   name -> why the number cannot be had; it is null then
    """
    from gptlab.probes.parameters import block_sizes, counted

    counts = counted(config)
    found: dict[str, Any] = {**counts.numbers, **dict.fromkeys(counts.missing), "block": block_sizes(config.model)}
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
