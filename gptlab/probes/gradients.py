"""Probe `gradients`: loss and gradients of one batch at initialisation, for each tensor, part and layer.

`grad_mean_abs` is the book's number, the mean of |dL/dw| over a tensor; `grad_norm` is the Euclidean norm, whose
squares add up over tensors. The loss is the mean cross-entropy over all tokens in nats, for `deep_mlp` the mean
squared error. `split` and `paths` look at where the gradient came from: see `splits` and `spectrum`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.hooks import RemovableHandle

from gptlab import streams
from gptlab.config import GradientsProbe
from gptlab.data.batches import Batch
from gptlab.probes import activations, spectrum, splits
from gptlab.probes.groups import group_of
from gptlab.probes.hooks import untouched
from gptlab.probes.subject import Measurement, Subject, l2_norm
from gptlab.registry import register

WHOLE = "all"  # the part that stands for a layer as a whole


@register("probe", "gradients")
def measure(subject: Subject) -> Measurement:
    """Loss and gradients of one batch, by tensor, part and layer.

    Metrics `loss`, `ln_vocab_size`, `grad_mean_abs`, `grad_norm` of all and of both ends; `layers` and `tensors`.
    """
    config, model = subject.config, subject.model
    probe = config.probes.gradients
    assert probe is not None and probe.context is not None
    batch = subject.source.batch(probe.batch_size, probe.context)
    loss, tensors, found_splits = _backward(subject, batch, probe)
    layers = _by_part(tensors)
    ends = _ends(layers)
    layers += splits.rows(found_splits)
    if probe.paths:
        layers += spectrum.rows(spectrum.spectrum(model, loss_of, batch))
    found = Measurement(metrics={"loss": loss}, tables={"tensors": tensors, "layers": layers})
    if subject.is_gpt:
        found.metrics["ln_vocab_size"] = math.log(config.model.vocab_size)
        found.warnings += _far_from_uniform(loss, config.model.vocab_size, tied=config.model.tie_weights)
    found.metrics |= _combined(tensors) | ends
    return found


def _backward(
    subject: Subject, batch: Batch, probe: GradientsProbe
) -> tuple[float, list[dict[str, Any]], list[splits.Split]]:
    """(loss, a row for each parameter, splits) of one batch.

    Without dropout, one pass serves all: the split and the probe `activations`, where that looks at the same batch.
    """
    model, shared = subject.model, not probe.dropout
    with untouched(model, train=probe.dropout) as handles:
        junctions = splits.watched(model, handles, retain=True) if probe.split and shared else {}
        activations.watch_along(subject, batch, handles if shared else None)
        inputs = _differentiable(batch).inputs if probe.split and shared else batch.inputs
        with streams.forked(subject.config.seed, "dropout"):
            loss = _of_output(model(inputs), batch)
        sizes = _sizes(model, handles)
        loss.backward(retain_graph=bool(junctions))
        found = splits.solved(junctions, splits.retained(junctions))
    if probe.split and not shared:
        found = splits.split(model, lambda: loss_of(model, _differentiable(batch)))
    rows = [_tensor_row(name, parameter, sizes.get(parameter)) for name, parameter in model.named_parameters()]
    return loss.item(), rows, found


def _sizes(model: nn.Module, handles: list[RemovableHandle]) -> dict[nn.Parameter, tuple[float, float]]:
    """Parameter -> (mean |g|, |g|), as a backward pass fills it. Each gradient is gone as soon as it has been seen."""
    sizes: dict[nn.Parameter, tuple[float, float]] = {}

    def see(parameter: nn.Parameter) -> None:
        gradient, parameter.grad = parameter.grad, None
        assert gradient is not None
        norm = l2_norm(gradient)
        sizes[parameter] = gradient.abs_().mean().item(), norm  # in place: nobody else has it

    handles += [p.register_post_accumulate_grad_hook(see) for p in model.parameters()]
    return sizes


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Scalar: mean cross-entropy (token targets) or mean squared error (number targets)."""
    return _of_output(model(batch.inputs), batch)


def _of_output(output: torch.Tensor, batch: Batch) -> torch.Tensor:
    if batch.targets.is_floating_point():
        return F.mse_loss(output, batch.targets)
    return F.cross_entropy(output.flatten(0, 1), batch.targets.flatten())


def _differentiable(batch: Batch) -> Batch:
    """The same batch; numbers that go into a model are then where its stream begins, and can have a gradient."""
    return replace(batch, inputs=batch.inputs.clone().requires_grad_()) if batch.inputs.is_floating_point() else batch


def _tensor_row(name: str, parameter: nn.Parameter, sizes: tuple[float, float] | None) -> dict[str, Any]:
    layer, group = group_of(name)
    mean_abs, norm = sizes or (0.0, 0.0)  # the loss does not depend on it
    return {
        "name": name,
        "shape": str(tuple(parameter.shape)),
        "numel": parameter.numel(),
        "group": group,
        "layer": layer,
        "grad_mean_abs": mean_abs,
        "grad_norm": norm,
    }


def _by_part(tensors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tidy rows (step, layer, part, metric, value); part WHOLE is a whole layer."""
    parts: dict[tuple[int | None, str], list[dict[str, Any]]] = {}
    for row in tensors:
        parts.setdefault((row["layer"], row["group"]), []).append(row)
        if row["layer"] is not None:
            parts.setdefault((row["layer"], WHOLE), []).append(row)
    return [
        {"step": 0, "layer": layer, "part": part, "metric": metric, "value": value}
        for (layer, part), rows in parts.items()
        for metric, value in _combined(rows).items()
    ]


def _combined(rows: list[dict[str, Any]]) -> dict[str, float]:
    size = sum(row["numel"] for row in rows)
    return {
        "grad_mean_abs": math.fsum(row["grad_mean_abs"] * row["numel"] for row in rows) / size if size else 0.0,
        "grad_norm": math.sqrt(math.fsum(row["grad_norm"] ** 2 for row in rows)),
    }


def _ends(layers: list[dict[str, Any]]) -> dict[str, float]:
    """Depth in two numbers: the gradient norms of the blocks nearest the input and nearest the output."""
    norms = {row["layer"]: row["value"] for row in layers if (row["part"], row["metric"]) == (WHOLE, "grad_norm")}
    return {"grad_norm_first": norms[min(norms)], "grad_norm_last": norms[max(norms)]} if norms else {}


def _far_from_uniform(loss: float, vocab_size: int, *, tied: bool) -> list[str]:
    uniform = math.log(vocab_size)
    if abs(loss - uniform) <= max(0.5, 0.1 * uniform):
        return []
    more = " docs/surprises.md derives what a tied table does." if tied else ""
    return [
        f"the initial loss {loss:.4g} is far from ln(vocab_size) = {uniform:.4g}: is the initial scale right?{more}"
    ]
