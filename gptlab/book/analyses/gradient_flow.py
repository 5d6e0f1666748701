"""Study `gradient_flow`: what shortcuts do to the gradients of the five-layer network, over many seeds.

Seed 123 is one draw. Over many, the lift is smaller and the shape of the profile is no rule; and the largest gradient,
in the last layer, is mostly the work of the shortcut that this layer alone does not have.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gptlab.analyses import Findings, Line
from gptlab.book.figures import canvas
from gptlab.book.figures.gradient_flow import Profile, batch_of, figure, profile, profile_of
from gptlab.config import Config
from gptlab.errors import ConfigError, wrong_value
from gptlab.model import build
from gptlab.model.shortcuts import Add, NoShortcut
from gptlab.probes.gradients import loss_of
from gptlab.probes.spectrum import rows, spectrum
from gptlab.registry import register
from gptlab.show.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Pairs = dict[int, tuple[Profile, Profile]]  # seed -> (without, with shortcuts)


class MeanShortcut(nn.Module):
    """A shortcut into a narrower layer: the mean over the features joins the branch."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(-1, keepdim=True) + self.layer(x)


@register("analysis", "gradient_flow")
def gradient_flow(variants: Sequence[Config], seeds: int = 500) -> Findings:
    """Gradients with and without shortcuts over seeds 0 .. seeds-1, and what makes the last layer's the largest."""
    if seeds < 2:
        raise wrong_value("experiment.options.seeds", seeds, "must be 2 or more.", code="gradient-flow-seeds")
    base = variants[0]
    if base.model.architecture != "deep_mlp":
        raise ConfigError(
            f"experiment.analysis=gradient_flow: needs architecture=deep_mlp, not {base.model.architecture}.",
            code="gradient-flow-architecture",
            key="experiment.analysis",
            value="gradient_flow",
            architecture=base.model.architecture,
        )
    with_, without = (replace(base, model=replace(base.model, shortcut=name)) for name in ("add", "none"))
    book = (profile(without), profile(with_))
    pairs = {s: (profile(replace(without, seed=s)), profile(replace(with_, seed=s))) for s in range(seeds)}
    designs = last_layer(with_, seeds)
    summary: list[Line] = [*_one_seed(book, with_), *_many(pairs)]
    for (width, own), share in designs.items():
        what = f"seeds in which the last layer is largest: width {width}, {'with' if own else 'without'} own shortcut"
        summary.append((f"last_largest_width{width}_{'own' if own else 'none'}", share, what))
    return Findings(
        summary, {"gradients": _quantiles(book, pairs)},
        {"gradient_flow": figure, "gradient_flow_seeds": lambda: seeds_figure(pairs, designs)},
    )  # fmt: skip


def error_factor(without: Profile, with_: Profile) -> float:
    """How much larger dL/dy = 2y is with shortcuts: the part of the lift that is only a larger error."""
    return abs(with_.output[0] / without.output[0])


def last_layer(config: Config, seeds: int) -> dict[tuple[int, bool], float]:
    """(width of the last layer, whether it has a shortcut of its own) -> share of seeds in which it is largest."""
    sizes = list(config.model.layer_sizes or [])
    shares = {}
    for width in (sizes[-2], sizes[-1]):
        for own in (False, True):
            shape = replace(config, model=replace(config.model, layer_sizes=[*sizes[:-1], width]))
            data = replace(config.data, targets=[[0.0] * width])
            largest = 0
            for seed in range(seeds):
                case = replace(shape, data=data, seed=seed)
                largest += profile_of(_with_last(case, own), batch_of(case)).largest == len(sizes) - 2
            shares[width, own] = largest / seeds
    return shares


def _with_last(config: Config, own: bool) -> Any:
    """The network with shortcuts in its body, and in its last layer where `own`. Same weights either way."""
    model: Any = build(config)
    sizes = config.model.layer_sizes or []
    if sizes[-1] == sizes[-2]:
        model.shortcuts[-1] = Add() if own else NoShortcut()
        return model
    return _Averaging(model) if own else model


class _Averaging(nn.Module):
    """A deep_mlp whose last, narrower layer is joined by the mean of its input."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.layers, self.shortcuts = model.layers, model.shortcuts
        self.last = MeanShortcut(model.layers[-1])

    def forward(self, x: Tensor) -> Tensor:
        for layer, shortcut in zip(self.layers[:-1], self.shortcuts[:-1], strict=True):
            x = shortcut(x, layer(x))
        return self.last(x)


def _one_seed(book: tuple[Profile, Profile], config: Config) -> list[Line]:
    without, with_ = book
    lifts = [high / low for low, high in zip(without.gradients, with_.gradients, strict=True)]
    error = error_factor(without, with_)
    found: list[Line] = []
    for layer, lift in enumerate(lifts):
        found.append((f"lift_{layer}", lift, f"gradient with over without shortcuts, layer {layer}, this seed"))
    bypass = next(
        row["value"] for row in rows(spectrum(build(config), loss_of, batch_of(config)))
        if (row["layer"], row["part"], row["metric"]) == (0, "weight", "path_share/0")
    )  # fmt: skip
    return [
        *found,
        ("error_factor", error, "of which: output error, dL/dy = 2y, with over without"),
        ("jacobian_factor", lifts[0] / error, "of which: Jacobian from layer 0 to the output"),
        ("bypass_share", bypass, "layer 0 with shortcuts: share of the gradient that passes no later branch"),
    ]


def _many(pairs: Pairs) -> list[Line]:
    number, last = len(pairs), len(pairs[0][0].gradients) - 1

    def share(holds: list[bool]) -> float:
        return sum(holds) / number

    lifts = [with_.gradients[0] / without.gradients[0] for without, with_ in pairs.values()]
    return [
        ("seeds", number, "networks in what follows"),
        ("monotone", share([a.monotone for a, _ in pairs.values()]),
         "without shortcuts: gradients shrink from each layer to the one before"),
        ("last_largest_without", share([a.largest == last for a, _ in pairs.values()]),
         "without shortcuts: the last layer has the largest gradient"),
        ("last_largest_with", share([b.largest == last for _, b in pairs.values()]), "with shortcuts: the same"),
        ("floor_lower_with", share([min(b.gradients) < min(a.gradients) for a, b in pairs.values()]),
         "the smallest gradient is smaller with shortcuts than without: they guarantee nothing"),
        ("median_lift_0", statistics.median(lifts), "median lift of layer 0"),
        ("median_error_factor", statistics.median(error_factor(*pair) for pair in pairs.values()),
         "median factor of the output error: the book's seed is far out"),
    ]  # fmt: skip


def _quantiles(book: tuple[Profile, Profile], pairs: Pairs) -> list[dict[str, Any]]:
    """A row per layer and quantity: the book's seed, and quantiles over the seeds."""
    found = []
    for layer in range(len(book[0].gradients)):
        both = [(a.gradients[layer], b.gradients[layer]) for a, b in (book, *pairs.values())]
        quantities = {"without": [a for a, _ in both], "with": [b for _, b in both], "lift": [b / a for a, b in both]}
        for name, (own, *many) in quantities.items():
            low, middle, high = quantiles(torch.tensor(many, dtype=torch.float64)).tolist()
            line = {"layer": layer, "quantity": name, "book_seed": own}
            found.append({**line, "q05": low, "median": middle, "q95": high})
    return found


def quantiles(values: Tensor) -> Tensor:
    """5%, 50% and 95% over the first dimension."""
    return torch.quantile(values, torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64), dim=0)


def seeds_figure(pairs: Pairs, designs: dict[tuple[int, bool], float]) -> Figure:
    """Left: gradients by layer over the seeds, median and 90% band. Right: how often the last layer is largest."""
    picture = canvas.blank(
        9.6, 4.15, f"The same over {len(pairs):,} seeds",
        "Shortcuts lift the gradients; that the last layer's is the largest is mostly that it has no shortcut",
    )  # fmt: skip
    axes = canvas.panel(picture, 0.8, 1.1, 4.4, 2.6)
    for number, (words, look) in enumerate((("without shortcuts", style.LINES[2]), ("with shortcuts", style.LINES[1]))):
        values = torch.tensor([pair[number].gradients for pair in pairs.values()], dtype=torch.float64)
        low, middle, high = quantiles(values)
        axes.plot(range(len(middle)), middle.tolist(), **look, markersize=6, label=words)
        axes.fill_between(range(len(middle)), low.tolist(), high.tolist(), color=look["color"], alpha=0.18, linewidth=0)
    axes.set_yscale("log")
    axes.set_xticks(range(5), [f"layers.{i}" for i in range(5)])
    axes.set_title("Mean |gradient|: median and the middle 90%")
    axes.legend(loc="lower right", fontsize=8.5)
    bars = canvas.panel(picture, 7.0, 1.1, 2.2, 2.6)
    labels = [f"width {w}, {'own shortcut' if own else 'no shortcut'}" for w, own in designs]
    colors = [style.BLUE if own else style.ORANGE for _, own in designs]
    hatches = ["////" if own else "" for _, own in designs]
    shares = [100 * share for share in designs.values()]
    bars.barh(range(len(labels)), shares, color=colors, hatch=hatches, edgecolor="white", linewidth=0, height=0.6)
    for place, share in enumerate(designs.values()):
        bars.text(100 * share + 2, place, f"{100 * share:.0f}%", va="center", fontsize=9)
    bars.set_yticks(range(len(labels)), labels)
    bars.set_ylim(len(labels) - 0.5, -0.5)
    bars.set_xlim(0, 118)
    bars.grid(visible=False)
    bars.set_title("Last layer has the largest gradient,\npercent of seeds (shortcuts in the body)", x=-0.75)
    return picture
