"""Probes during training: a look from outside that changes no number of the run.

Gradients and generation are the probes of that name, on their own fixed batch; `update_ratio` compares the weights
before and after one step of the training itself.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from gptlab import probes
from gptlab.probes import Subject
from gptlab.probes.groups import group_of


def look(
    subject: Subject, step: int, only: Collection[str] | None = None
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """(rows for layers.csv, generated text or None) of the model as it is now, by the probes that are on."""
    model = subject.model
    observed = replace(subject)
    # Probes compute on the CPU; a model elsewhere shows them a copy.
    here = next(model.parameters()).device.type == "cpu"
    vars(observed)["model"] = model if here else copy.deepcopy(model).cpu()
    vars(observed)["source"] = subject.source
    grads = [(weight, weight.grad) for weight in model.parameters()]
    training = model.training
    rows: list[dict[str, Any]] = []
    sample = None
    model.eval()
    try:
        for weight, _ in grads:
            weight.grad = None
        for probe in probes.chosen(subject.config):
            if (only is not None and probe.name not in only) or probe.facts["static"]:
                continue
            if probes.why_not(probe, subject.config):
                continue
            found = probes.measure(probe, observed)
            rows += [{**row, "step": step} for row in found.tables.get("layers", [])]
            if "generation" in found.documents:
                sample = {"step": step, **found.documents["generation"]}
    finally:
        model.train(training)
        for weight, grad in grads:
            weight.grad = grad
    return rows, sample


class UpdateRatio:
    """Root mean square of a step over that of the weights before it, by layer and part. About 1e-3 is usual."""

    def __init__(self, model: nn.Module) -> None:
        self._before = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    def rows(self, model: nn.Module, step: int) -> list[dict[str, Any]]:
        """Rows for layers.csv, after the step; part `all` is a whole layer."""
        squares: dict[tuple[int | None, str], list[float]] = {}
        for name, weight in model.named_parameters():
            layer, part = group_of(name)
            before = self._before[name]
            pair = _square(weight.detach() - before), _square(before)
            for key in {(layer, part), (layer, "all")} if layer is not None else {(layer, part)}:
                sums = squares.setdefault(key, [0.0, 0.0])
                sums[0] += pair[0]
                sums[1] += pair[1]
        return [
            {"step": step, "layer": layer, "part": part, "metric": "update_ratio", "value": math.sqrt(moved / weight)}
            for (layer, part), (moved, weight) in squares.items()
            if weight
        ]


def _square(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor, dtype=torch.float64) ** 2)
