"""Probe `shapes`: what every module puts out, in order, with bytes, on the meta device: any batch, any context."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from gptlab.config import ModelConfig
from gptlab.model import skeleton
from gptlab.model.attention import MultiHeadAttention
from gptlab.probes.dry_run import UncountableError, dry_run
from gptlab.probes.memory import weight_bytes
from gptlab.probes.subject import Measurement, Subject
from gptlab.registry import register


@register("probe", "shapes", static=True)
def measure(subject: Subject) -> Measurement:
    """Every intermediate shape, with bytes, traced on the meta device.

    Table `shapes`.
    """
    probe = subject.config.probes.shapes
    assert probe is not None and probe.context is not None
    try:
        return Measurement(tables={"shapes": trace(subject.config.model, probe.batch_size, probe.context)})
    except UncountableError as error:
        return Measurement(notes=[f"shapes: no trace, because {error}"])


def trace(config: ModelConfig, batch_size: int, context: int) -> list[dict[str, Any]]:
    """One row for the input, one for the output of each module, and four inside attention, in the order of computation.

    UncountableError where a part cannot be computed without values.
    """
    model = skeleton(config).requires_grad_(False)
    x = model.example_input(batch_size, context)
    rows = [_row(0, "input", "token ids" if not x.is_floating_point() else "numbers", x)]
    handles = [
        module.register_forward_hook(partial(_record, rows, name or "model")) for name, module in model.named_modules()
    ]
    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):
            _look_inside(rows, name, module)
    dry_run(model, batch_size, context)
    for handle in handles:
        handle.remove()
    return rows


def memory_estimate(config: ModelConfig, batch_size: int, context: int) -> tuple[int, int]:
    """Bytes of (the weights, the peak of one forward and backward pass), estimated from the skeleton.

    UncountableError as for `trace`. The peak holds the weights, their gradients and every leaf module's output; the
    logits three times, because the loss and its gradient are as large as they are.
    """
    model = skeleton(config)
    leaves = {name or "model" for name, module in model.named_modules() if not list(module.children())}
    rows = trace(config, batch_size, context)
    activations = sum(row["bytes"] for row in rows if row["module"] in leaves) + 2 * rows[-1]["bytes"]
    return weight_bytes(model), 2 * weight_bytes(model) + activations


def _look_inside(rows: list[dict[str, Any]], name: str, attention: MultiHeadAttention) -> None:
    """Rows for what each head has: queries, keys, values, and the scores, which SDPA computes without storing them."""
    split = attention.queries_keys_values

    def recorded(x: torch.Tensor, positions: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
        q, k, v = split(x, positions)
        for part, tensor in (("queries", q), ("keys", k), ("values", v)):
            rows.append(_row(len(rows), f"{name}.{part}", "per head", tensor))
        scores = q.new_empty(*q.shape[:3], k.shape[2])
        rows.append(_row(len(rows), f"{name}.scores", "queries x keys", scores))
        return q, k, v

    attention.queries_keys_values = recorded  # type: ignore[method-assign, assignment]


def _record(rows: list[dict[str, Any]], name: str, module: nn.Module, inputs: Any, output: Any) -> None:
    if isinstance(output, tuple) and output:
        output = output[0]  # what a module gives beside the stream comes after it
    if isinstance(output, torch.Tensor):
        rows.append(_row(len(rows), name, type(module).__name__, output))


def _row(order: int, name: str, kind: str, tensor: torch.Tensor) -> dict[str, Any]:
    shape = tuple(tensor.shape)
    size = tensor.numel()
    return {
        "order": order,
        "module": name,
        "type": kind,
        "output_shape": str(shape),
        "elements": size,
        "bytes": size * tensor.element_size(),
    }
