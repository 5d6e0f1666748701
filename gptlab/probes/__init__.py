"""Probes: measurements that stay outside the model. Each looks at a `Subject` and returns a `Measurement`."""

from __future__ import annotations

from collections.abc import Callable

from gptlab.probes import activations, generation, gradients, parameters, shapes
from gptlab.probes.subject import Measurement, Subject

PROBES: dict[str, Callable[[Subject], Measurement]] = {
    "parameters": parameters.measure,
    "shapes": shapes.measure,
    "gradients": gradients.measure,
    "activations": activations.measure,
    "generation": generation.measure,
}
NEEDS_TOKENS = frozenset({"generation"})

__all__ = ["NEEDS_TOKENS", "PROBES", "Measurement", "Subject"]
