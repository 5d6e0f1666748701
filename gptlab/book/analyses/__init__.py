"""The analyses that gptlab brings: importing this package registers them. See `gptlab.analyses`."""

from gptlab.book.analyses import (
    activation_curves,
    expansion_parity,
    gradient_flow,
    greedy_steps,
    layer_norm_conventions,
    parameter_budget,
    position_equivariance,
)

__all__ = [
    "activation_curves", "expansion_parity", "gradient_flow", "greedy_steps", "layer_norm_conventions",
    "parameter_budget", "position_equivariance",
]  # fmt: skip
