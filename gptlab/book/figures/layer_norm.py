"""Figure `layer_norm`: the book's row of six features, normalised with both conventions for the variance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gptlab.book.figures import canvas
from gptlab.model.norms import LayerNorm
from gptlab.show.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTHS = (2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 768, 1600, 12288)


def demo_rows(seed: int = 123) -> Tensor:
    """(2, 6): two rows of five normal numbers through Linear(5, 6) and ReLU, as chapter 4 draws them."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        batch = torch.randn(2, 5)
        rows: Tensor = nn.Sequential(nn.Linear(5, 6), nn.ReLU())(batch)
    return rows


class UnbiasedLayerNorm(nn.Module):
    """A LayerNorm that divides by n - 1: `norm`'s own scale, shift and eps, with the other variance."""

    def __init__(self, norm: LayerNorm) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        y = centred / torch.sqrt(x.var(-1, keepdim=True, unbiased=True) + self.norm.eps)
        y = y if self.norm.scale is None else y * self.norm.scale
        return y if self.norm.shift is None else y + self.norm.shift


def normalised(x: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """(with the variance over n, as gptlab and GPT-2 do; with n - 1), for rows of any width."""
    norm = LayerNorm(x.shape[-1], eps=eps)
    with torch.no_grad():
        return norm(x), UnbiasedLayerNorm(norm)(x)


def ratio(width: int) -> float:
    """How much larger the outputs with n are than those with n - 1, at this width. Measured in float64, eps 0."""
    x = torch.arange(width, dtype=torch.float64).sin()[None]
    with torch.no_grad():
        norm = LayerNorm(width, eps=0.0).double()
        return float((norm(x)[0, 0] / UnbiasedLayerNorm(norm)(x)[0, 0]).item())


def figure() -> Figure:
    """Left: inputs. Middle: outputs with both conventions. Right: their ratio over the width."""
    row = demo_rows()[0]
    biased, unbiased = normalised(row[None], eps=0.0)
    picture = canvas.blank(
        10.2, 4.05, "Layer normalisation: divide by n or by n \N{MINUS SIGN} 1?",
        "It shows at 6 features and not at 768. GPT-2 and torch.nn.LayerNorm divide by n (here: eps = 0)",
    )  # fmt: skip
    _features(
        canvas.panel(picture, 0.6, 1.15, 2.35, 2.3), [("input", row, style.GHOST, "")],
        f"Input: mean {row.mean():.4f}\nvariance {row.var(unbiased=False):.4f} (n), {row.var():.4f} "
        "(n \N{MINUS SIGN} 1)",
    )  # fmt: skip
    series = [("n", biased[0], style.BLUE, ""), ("n \N{MINUS SIGN} 1", unbiased[0], style.ORANGE, "////")]
    _features(
        canvas.panel(picture, 3.5, 1.15, 3.1, 2.3), series,
        f"Output: mean 0, first feature\n{biased[0, 0]:.4f} (n), {unbiased[0, 0]:.4f} (n \N{MINUS SIGN} 1)",
    )  # fmt: skip
    _ratio(canvas.panel(picture, 7.3, 1.15, 2.65, 2.3))
    return picture


def _features(axes: Axes, series: list[tuple[str, Tensor, str, str]], title: str) -> None:
    wide = 0.78 / len(series)
    for number, (label, values, color, hatch) in enumerate(series):
        places = [i + (number - (len(series) - 1) / 2) * wide for i in range(len(values))]
        axes.bar(places, values.tolist(), wide, color=color, hatch=hatch, edgecolor="white", linewidth=0, label=label)
    axes.axhline(0, color=style.INK, linewidth=0.8)
    axes.set_xticks(range(len(series[0][1])), [str(i) for i in range(len(series[0][1]))])
    axes.set_xlabel("feature")
    axes.set_title(title)
    axes.grid(visible=False, axis="x")
    if len(series) > 1:
        axes.legend(fontsize=8.5, title="variance over", title_fontsize=8.5)


def _ratio(axes: Axes) -> None:
    values = [ratio(width) for width in WIDTHS]
    axes.plot(WIDTHS, [value - 1 for value in values], color=style.INK, marker="o", markersize=3.5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([2, 6, 64, 768, 12288], ["2", "6", "64", "768", "12288"])
    axes.minorticks_off()
    axes.set_ylim(1e-5, 1)
    axes.set_xlabel("features n")
    axes.set_title("Output with n over output with n \N{MINUS SIGN} 1,\nminus 1")
    for width, to in ((6, (14, 0.35)), (768, (25, 6e-5))):
        value = ratio(width)
        canvas.note(axes, f"n = {width}: {value:.{4 if width < 100 else 5}f}", (width, value - 1), to, va="center")
