"""GELU and ReLU: table, minimum, gap between the two forms of GELU, gradients."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gptlab.book.reproduce.lab import Lab
from gptlab.book.reproduce.measured_by import check, checks
from gptlab.book.reproduce.verdicts import Found

TABLE = {"-1": -1.0, "-0.5": -0.5, "0": 0.0, "0.5": 0.5, "1": 1.0, "3": 3.0}
TANH, EXACT = "gelu_tanh", "gelu"


def slope(lab: Lab, name: str, x: Tensor) -> Tensor:
    """The derivative at each x, by autograd."""
    x = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(lab.part("activation", name)(x).sum(), x)
    return found


def grid(lab: Lab) -> Tensor:
    return torch.linspace(-6, 6, 240_001, dtype=torch.float64)


def minimum(lab: Lab, name: str = TANH) -> tuple[float, float]:
    """(x, y) where the derivative crosses zero on the negative axis, by bisection."""
    low, high = -1.4, -0.2
    for _ in range(60):
        middle = (low + high) / 2
        if slope(lab, name, torch.tensor(middle, dtype=torch.float64)) < 0:
            low = middle
        else:
            high = middle
    return low, lab.part("activation", name)(torch.tensor(low, dtype=torch.float64)).item()


@checks(
    {f"GE-tab{word}": ("relu", x) for word, x in TABLE.items()}
    | {f"GE-tabg{word}": (TANH, x) for word, x in TABLE.items()}
)
def table(lab: Lab, name: str, x: float) -> float:
    return lab.part("activation", name)(torch.tensor(x)).item()


@check("GE-minx", "GE-minbook")
def turning_point(lab: Lab) -> Found:
    return Found(minimum(lab)[0], f"the exact form turns at {minimum(lab, EXACT)[0]:.6f}")


@check("GE-miny")
def lowest(lab: Lab) -> Found:
    return Found(minimum(lab)[1], f"the exact form reaches {minimum(lab, EXACT)[1]:.6f}")


def gap(lab: Lab) -> tuple[Tensor, Tensor]:
    x = grid(lab)
    return x, (lab.part("activation", TANH)(x) - lab.part("activation", EXACT)(x)).abs()


@check("GE-gap")
def largest_gap(lab: Lab) -> float:
    return gap(lab)[1].max().item()


@check("GE-gapx")
def where_the_gap_is(lab: Lab) -> float:
    x, distance = gap(lab)
    return abs(x[distance.argmax()].item())


@check("GE-const")
def formula(lab: Lab) -> float:
    x = torch.linspace(-5, 5, 10_001)
    expected = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return (lab.part("activation", TANH)(x) - expected).abs().max().item()


@check("GE-relu0")
def step(lab: Lab) -> tuple[float, ...]:
    x = torch.cat((torch.linspace(-5, -1e-6, 1000), torch.linspace(1e-6, 5, 1000)))
    found = slope(lab, "relu", x)
    below, above = found[:1000].unique(), found[1000:].unique()
    return *below.tolist(), *above.tolist()


@check("GE-dneg")
def steepest_fall(lab: Lab) -> Found:
    x = grid(lab)
    tanh, exact = slope(lab, TANH, x), slope(lab, EXACT, x)
    return Found(
        tanh.min().item(),
        f"tanh form at {x[tanh.argmin()]:.4f}; exact form {exact.min():.5f} at {x[exact.argmin()]:.4f}",
    )


@check("GE-nonzero")
def zero_gradients(lab: Lab) -> Found:
    x = torch.linspace(-10, -1, 900_001)
    ends = {}
    for name in (TANH, EXACT):
        dead = x[slope(lab, name, x) == 0]
        ends[name] = dead.max().item() if len(dead) else None
    if not any(ends.values()):
        return Found("nonzero")
    return Found(
        "zero far out",
        f"float32 autograd returns exactly 0 below {ends[TANH]:.2f} (tanh form) and {ends[EXACT]:.2f} (exact form)",
    )


@check("GE-gate")
def gate(lab: Lab) -> tuple[float, float]:
    x = torch.linspace(-10, 10, 20_000, dtype=torch.float64)  # an even number of points: zero is not among them
    share = lab.part("activation", TANH)(x) / x
    return share.min().item(), share.max().item()
