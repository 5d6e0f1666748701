"""Study `activation_curves`: where the activations turn, how far apart the two GELUs are, where gradients vanish."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gptlab.analyses import Findings
from gptlab.book.figures.activation_curves import curve, figure, flat_below, gap, minimum
from gptlab.config import Config
from gptlab.registry import register


@register("analysis", "activation_curves")
def activation_curves(variants: Sequence[Config]) -> Findings:
    """Minima, derivatives and gaps of the activations that the variants use, and a table of their values."""
    lowest, exact, largest = minimum("gelu_tanh"), minimum("gelu"), gap()
    x = torch.linspace(-3, 0, 30_001, dtype=torch.float64)
    slope = curve("gelu_tanh", x)[1]
    points = torch.tensor([-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0], dtype=torch.float64)
    table = []
    for name in dict.fromkeys(config.model.activation for config in variants):
        for at, value, derivative in zip(points.tolist(), *(t.tolist() for t in curve(name, points)), strict=True):
            table.append({"activation": name, "x": at, "value": value, "derivative": derivative})
    return Findings(
        [
            ("minimum_x", lowest.x, "GELU, tanh form: where it turns"),
            ("minimum_y", lowest.y, "and its value there"),
            ("minimum_x_exact", exact.x, "exact GELU: where it turns"),
            ("minimum_y_exact", exact.y, "and its value there"),
            ("gap", largest.y, "largest difference between the two forms"),
            ("gap_x", largest.x, "reached at this |x|"),
            ("slope_minimum", slope.min().item(), "lowest derivative of the tanh form"),
            ("slope_minimum_x", x[int(slope.argmin())].item(), "and where"),
            ("flat_below", flat_below("gelu_tanh"), "tanh form: below this, float32 autograd gives exactly zero"),
            ("flat_below_exact", flat_below("gelu"), "exact GELU: the same"),
        ],
        {"values": table},
        {"activation_curves": figure},
    )
