"""Figure `activation_curves`: ReLU, GELU, its tanh form and SiLU; their derivatives; the gap between the two GELUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gptlab import registry
from gptlab.book.figures import canvas
from gptlab.show.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: dict[str, dict[str, Any]] = {
    "relu": {"color": style.BLUE, "linestyle": (0, (5, 2)), "label": "ReLU"},
    "silu": {"color": style.GREEN, "linestyle": (0, (1.2, 1.2)), "label": "SiLU"},
    "gelu_tanh": {"color": style.VERMILION, "linestyle": "-", "label": "GELU (tanh form)"},
}


def curve(name: str, x: Tensor) -> tuple[Tensor, Tensor]:
    """(values, derivatives) of a registered activation at the float64 points `x`."""
    x = x.detach().double().requires_grad_()
    y = registry.get("activation", name).factory()(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    return y.detach(), slope


@dataclass(frozen=True)
class Point:
    """Where something happens on a curve."""

    x: float
    y: float


def minimum(name: str, low: float = -2.0, high: float = -0.1) -> Point:
    """The lowest point: where the derivative changes its sign, by bisection."""
    for _ in range(80):
        middle = (low + high) / 2
        slope = curve(name, torch.tensor([middle]))[1].item()
        low, high = (low, middle) if slope > 0 else (middle, high)
    return Point(low, curve(name, torch.tensor([low], dtype=torch.float64))[0].item())


def gap(points: int = 120_001, reach: float = 6.0) -> Point:
    """The largest difference between GELU and its tanh form, at positive x (it is even in x)."""
    x = torch.linspace(0, reach, points, dtype=torch.float64)
    difference = (curve("gelu_tanh", x)[0] - curve("gelu", x)[0]).abs()
    place = int(difference.argmax())
    return Point(x[place].item(), difference[place].item())


def flat_below(name: str) -> float:
    """The largest negative x below which float32 autograd returns a derivative of exactly zero."""
    x = torch.linspace(-8, -4, 400_001).requires_grad_()
    (slope,) = torch.autograd.grad(registry.get("activation", name).factory()(x).sum(), x)
    return x.detach()[slope != 0].min().item()


def figure() -> Figure:
    """Values, derivatives, and the gap on its own scale."""
    picture = canvas.blank(
        10.4, 4.3, "Activations, their derivatives, and how close the tanh form comes",
        "GELU lets a little of the negative side through, and its derivative has no step",
    )  # fmt: skip
    x = torch.linspace(-4, 4, 801, dtype=torch.float64)
    values = canvas.panel(picture, 0.5, 1.05, 2.75, 2.7)
    slopes = canvas.panel(picture, 3.85, 1.05, 2.75, 2.7)
    for name, look in LOOKS.items():
        y, slope = curve(name, x)
        values.plot(x.numpy(), y.numpy(), linewidth=1.7, **look)
        slopes.plot(x.numpy(), slope.numpy(), linewidth=1.7, **look)
    lowest = minimum("gelu_tanh")
    values.set_ylim(-0.5, 3)
    values.set_xlim(-3.2, 3.2)
    slopes.set_xlim(-3.2, 3.2)
    values.plot([lowest.x], [lowest.y], "o", color=style.INK, markersize=4.5, zorder=5)
    canvas.note(
        values, f"minimum {lowest.y:.4f}\nat x = {lowest.x:.5f}", (lowest.x, lowest.y), (-3.0, 0.62)
    )  # fmt: skip
    values.set_title("Value")
    values.legend(loc="upper left", fontsize=8.5)
    slopes.set_title("Derivative")
    slopes.axhline(0, color=style.INK, linewidth=0.7)
    values.axhline(0, color=style.INK, linewidth=0.7)
    _lowest_slope(slopes)
    _gap(canvas.panel(picture, 7.35, 1.05, 2.8, 2.7))
    for axes in picture.axes:
        axes.set_xlabel("x")
    return picture


def _lowest_slope(axes: Axes) -> None:
    x = torch.linspace(-3, 0, 30_001, dtype=torch.float64)
    slope = curve("gelu_tanh", x)[1]
    place = int(slope.argmin())
    at = (x[place].item(), slope[place].item())
    axes.plot(*[[value] for value in at], "o", color=style.INK, markersize=4.5, zorder=5)
    canvas.note(axes, f"{at[1]:.4f}\nat x = {at[0]:.4f}", at, (-3.0, 0.42))


def _gap(axes: Axes) -> None:
    x = torch.linspace(-5, 5, 2001, dtype=torch.float64)
    difference = curve("gelu_tanh", x)[0] - curve("gelu", x)[0]
    axes.plot(x.numpy(), 1e4 * difference.numpy(), color=style.INK, linewidth=1.4)
    axes.axhline(0, color=style.INK, linewidth=0.7)
    largest = gap()
    for sign in (-1, 1):
        y = curve("gelu_tanh", torch.tensor([sign * largest.x]))[0] - curve("gelu", torch.tensor([sign * largest.x]))[0]
        axes.plot([sign * largest.x], [1e4 * y.item()], "o", color=style.VERMILION, markersize=4.5, zorder=5)
    axes.set_ylim(-3, 6.2)
    axes.text(
        0, 5.5, f"largest gap {largest.y:.6f} at |x| = {largest.x:.2f}", ha="center", fontsize=8.5, color=style.INK
    )  # fmt: skip
    axes.set_title("tanh form minus exact GELU, times 10\N{SUPERSCRIPT FOUR}")
