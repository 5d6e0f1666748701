"""The model: `build` a config into a GPT. Importing this package registers gptlab's own components."""

from gptlab.model import (
    activations,
    attention,
    feed_forward,
    heads,
    init,
    layouts,
    norms,
    positions,
    shortcuts,
)
from gptlab.model.across_layers import shared_keys_values, skips
from gptlab.model.attentions import differential, latent
from gptlab.model.build import Model, build, learning_rate_scales, skeleton
from gptlab.model.deep_mlp import DeepMLP
from gptlab.model.experts import moe
from gptlab.model.gpt import GPT

__all__ = [
    "GPT", "DeepMLP", "Model", "activations", "attention", "build", "differential", "feed_forward", "heads",
    "init", "latent", "layouts", "learning_rate_scales", "moe", "norms", "positions", "shared_keys_values", "shortcuts",
    "skeleton", "skips",
]  # fmt: skip
