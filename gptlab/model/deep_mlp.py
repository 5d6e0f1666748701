"""The book's small deep network for looking at gradients with and without shortcuts."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from gptlab.config import ModelConfig
from gptlab.model.branches import Branch
from gptlab.model.layers import Linear
from gptlab.model.slots import Parts


class DeepMLP(nn.Module):
    """Linear + activation, once for each step of `layer_sizes`: (B, layer_sizes[0]) -> (B, layer_sizes[-1]).

    A layer has a shortcut only where its input and output have the same shape.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        parts = Parts(config)
        self.sizes = sizes = list(config.layer_sizes or [])
        self.layers = nn.ModuleList(
            nn.Sequential(Linear(width, following), parts("activation")) for width, following in pairwise(sizes)
        )
        # Where a layer changes the width there is no shortcut.
        self.shortcuts = nn.ModuleList(
            parts("shortcut", emb_dim=width) if width == following else nn.Identity()
            for width, following in pairwise(sizes)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer, shortcut in zip(self.layers, self.shortcuts, strict=True):
            branch = layer(x)
            x = shortcut(x, branch) if branch.shape == x.shape else branch
        return x

    def branches(self) -> list[Branch]:
        """Each layer is one; where it changes the width, it replaces the stream."""
        found = []
        for i, (layer, shortcut) in enumerate(zip(self.layers, self.shortcuts, strict=True)):
            joined = self.sizes[i] == self.sizes[i + 1]
            found.append(Branch(i, "all", layer, layer, shortcut, (layer,), (shortcut,), joined=joined))
        return found

    def stream_layers(self) -> list[nn.Module]:
        """The layers, each without its shortcut."""
        return list(self.layers)

    def after_layers(self) -> list[nn.Module]:
        """Nothing stands behind the last one."""
        return []

    def example_input(self, batch_size: int, context: int) -> Tensor:
        """Zeros (batch_size, layer_sizes[0]), on the model's device. There is no context here."""
        weight = next(self.parameters())
        return torch.zeros(batch_size, weight.shape[1], device=weight.device)
