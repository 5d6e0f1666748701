"""Figure `gradient_flow`: the five-layer network's gradients with and without shortcuts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from gptlab.book.figures import canvas
from gptlab.config import Config
from gptlab.data.batches import Batch, load
from gptlab.declare.composer import compose
from gptlab.model import build
from gptlab.probes.gradients import loss_of
from gptlab.probes.hooks import untouched
from gptlab.show.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARROW: dict[str, Any] = {"arrowstyle": "-|>", "color": style.GHOST, "linewidth": 1.6, "shrinkA": 6, "shrinkB": 6}


@dataclass(frozen=True)
class Profile:
    """Mean absolute gradient of each layer's weight, and the outputs of the network."""

    gradients: tuple[float, ...]
    output: tuple[float, ...]

    @property
    def largest(self) -> int:
        """The layer with the largest gradient."""
        return max(range(len(self.gradients)), key=self.gradients.__getitem__)

    @property
    def monotone(self) -> bool:
        """Whether the gradients shrink from the last layer to the first."""
        return list(self.gradients) == sorted(self.gradients)


def profile_of(model: Any, batch: Batch) -> Profile:
    """One backward pass of a `deep_mlp`, which is left as it was."""
    with untouched(model):
        loss_of(model, batch).backward()
        gradients = tuple(layer[0].weight.grad.abs().mean().item() for layer in model.layers)
        with torch.no_grad():
            output = tuple(model(batch.inputs).flatten().tolist())
    return Profile(gradients, output)


def profile(config: Config) -> Profile:
    """Build the network that `config` declares and look at its gradients."""
    return profile_of(build(config), batch_of(config))


def batch_of(config: Config) -> Batch:
    """The one row of the book's example."""
    return load(config.data, vocab_size=config.model.vocab_size, seed=config.seed).batch(1, 1)


def figure() -> Figure:
    """Two dots per layer on a logarithmic axis, an arrow between them, its factor beside it."""
    without, with_ = (profile(compose(["model=deep_mlp", f"ablation={name}"])) for name in ("no_shortcut", "none"))
    picture = canvas.blank(
        8.2, 5.0, "Shortcuts lift the gradient of every layer",
        "Mean absolute gradient of each weight matrix: layers 3-3-3-3-3-1, seed 123, input (1, 0, \N{MINUS SIGN}1), "
        "squared error to 0",
    )  # fmt: skip
    axes = canvas.panel(picture, 0.85, 0.95, 7.05, 3.35)
    layers = range(len(without.gradients))
    for low, high, layer in zip(without.gradients, with_.gradients, layers, strict=True):
        axes.annotate("", (layer, high), (layer, low), arrowprops=ARROW)
        axes.text(layer + 0.06, (low * high) ** 0.5, f"{high / low:,.0f}x", fontweight="bold", fontsize=11, va="center")
        axes.text(layer, high * 1.5, f"{high:.4f}", fontsize=8.5, color="#444444", ha="center")
        axes.text(layer, low * 0.68, f"{low:.6f}", fontsize=8.5, color="#444444", va="top", ha="center")
    axes.plot(layers, with_.gradients, **style.LINES[1], linewidth=1, markersize=8, label="with shortcuts")
    axes.plot(layers, without.gradients, **style.LINES[2], linewidth=1, markersize=8, label="without shortcuts")
    axes.set_yscale("log")
    axes.set_ylim(4e-5, 9)
    axes.set_xlim(-0.35, len(without.gradients) - 0.45)
    axes.set_xticks(layers, [f"layers.{i}" for i in layers])
    axes.set_xlabel("first layer to last: the loss is on the right")
    axes.set_ylabel("mean |gradient|, log scale")
    axes.grid(visible=False, axis="x")
    axes.legend(loc="upper left", ncols=2)
    return picture
