"""Layer normalisation: the book's two rows of six, both conventions for the variance, and where norms stand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gptlab.book.reproduce.lab import Lab
from gptlab.book.reproduce.measured_by import check, checks
from gptlab.book.reproduce.verdicts import Found
from gptlab.model.layers import Linear


def demo(lab: Lab) -> Tensor:
    """(2, 6): two rows of five random numbers through a linear layer and ReLU, drawn as a plain script draws them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(lab.seed)
        x = torch.randn(2, 5)
        return lab.part("activation", "relu")(Linear(5, 6)(x)).detach()


def norm(lab: Lab, dim: int = 6, **options: Any) -> Any:
    return lab.part("norm", "layernorm", dim=dim, **options).requires_grad_(False)


def by_hand(x: Tensor, unbiased: bool) -> Tensor:
    """(x - mean) / sqrt(variance), without eps."""
    return (x - x.mean(-1, keepdim=True)) / x.var(-1, unbiased=unbiased, keepdim=True).sqrt()


@checks({"LN-out0": 0, "LN-out1": 1})
def row(lab: Lab, index: int) -> tuple[float, ...]:
    return tuple(demo(lab)[index].tolist())


@checks({"LN-mean0": 0, "LN-mean1": 1})
def mean(lab: Lab, index: int) -> float:
    return demo(lab).mean(-1)[index].item()


@checks({"LN-var0u": (0, True), "LN-var1u": (1, True), "LN-var0b": (0, False)})
def variance(lab: Lab, index: int, unbiased: bool) -> float:
    return demo(lab).var(-1, unbiased=unbiased)[index].item()


@check("LN-norm0u")
def first_number(lab: Lab) -> float:
    return by_hand(demo(lab), unbiased=True)[0, 0].item()


@check("LN-norm0pub")
def first_number_of_rounded(lab: Lab) -> float:
    return by_hand(demo(lab).double().round(decimals=4), unbiased=True)[0, 0].item()


@check("LN-norm0b")
def first_number_biased(lab: Lab) -> Found:
    rows = demo(lab).double()
    module = norm(lab, eps=0.0).double()
    full = module(rows)[0, 0].item()
    return Found(module(rows.round(decimals=4))[0, 0].item(), f"inputs with all digits give {full:.4f}")


@check("LN-norm0eps")
def module_row(lab: Lab) -> tuple[float, ...]:
    return tuple(norm(lab)(demo(lab))[0].tolist())


@check("LN-ratio6")
def conventions(lab: Lab) -> float:
    return _ratio(lab, demo(lab)[0].double())


@check("LN-ratio768")
def conventions_at_full_width(lab: Lab) -> float:
    return _ratio(lab, lab.noise(lab.config().model.emb_dim))


def _ratio(lab: Lab, x: Tensor) -> float:
    module = norm(lab, dim=len(x), eps=0.0).double()
    return (module(x)[0] / by_hand(x, unbiased=True)[0]).item()


@check("LN-gamma3")
def tripled(lab: Lab) -> Found:
    x = demo(lab)[0].double()
    variances = []
    for eps in (0.0, 1e-5):
        module = norm(lab, eps=eps).double()
        nn.init.constant_(module.scale, 3.0)
        variances.append(module(x).var(unbiased=False).item())
    return Found(variances[0], f"without eps; with eps 1e-5 it is {variances[1]:.4f}")


@check("LN-normmean")
def means_after(lab: Lab) -> Found:
    rows = demo(lab)
    found = by_hand(rows, unbiased=True).mean(-1).tolist()
    exact = by_hand(rows.double(), unbiased=True).mean(-1).abs().max().item()
    return Found(
        tuple(found),
        f"in float64 they are {'below 1e-15' if exact < 1e-15 else exact}: the printed digits are rounding noise of "
        "float32, which differs by build",
    )


@check("LN-normvar")
def variances_after(lab: Lab) -> float:
    return by_hand(demo(lab), unbiased=True).var(-1)[0].item()


@checks({"LN-modvar0": 0, "LN-modvar1": 1})
def variance_of_module(lab: Lab, index: int) -> float:
    return norm(lab)(demo(lab)).var(-1, unbiased=False)[index].item()


@check("LN-keepdim")
def kept_dimension(lab: Lab) -> tuple[int, ...]:
    rows = demo(lab)
    kept, dropped = rows.mean(-1, keepdim=True), rows.mean(-1)
    return tuple(kept.shape) if dropped.dim() == kept.dim() - 1 else tuple(dropped.shape)


@check("LN-eps")
def constant_row(lab: Lab) -> str:
    found = norm(lab)(torch.full((1, 6), 3.0))
    return "finite" if torch.isfinite(found).all() and found.abs().max() == 0 else str(found.tolist())


@check("LN-affine")
def affine(lab: Lab) -> tuple[float, ...]:
    module = norm(lab)
    per_feature = sum(p.numel() for p in module.parameters()) / 6
    return per_feature, *(p.mean().item() for p in module.parameters())


@check("LN-axis")
def neighbours(lab: Lab) -> str:
    rows = demo(lab)
    other = torch.stack((rows[0], 7 * rows[1] + 1))
    module = norm(lab)
    return "bit-equal" if torch.equal(module(rows)[0], module(other)[0]) else "different"


@check("LN-torchref")
def formula(lab: Lab) -> float:
    rows = demo(lab)
    centred = rows - rows.mean(-1, keepdim=True)
    expected = centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
    return max((norm(lab)(rows) - other).abs().max().item() for other in (expected, nn.LayerNorm(6)(rows).detach()))


@check("LN-fig45")
def figure(lab: Lab) -> Found:
    row = demo(lab)[0]
    n, sd = row.var(unbiased=False).item(), row.std().item()
    return Found(
        (row.mean().item(), row.var().item()),
        f"the variance is {row.var():.4f} (n-1) or {n:.4f} (n), the standard deviation {sd:.2f}: 0.39 is none of them",
    )


@check("EQ-ln")
def draws(lab: Lab) -> tuple[float, float]:
    """The lesson's generator goes on after the 12 numbers of its attention example."""
    import numpy as np

    rng = np.random.default_rng(lab.seed - 123)
    rng.normal(size=12)
    found = norm(lab, dim=8).double()(torch.from_numpy(rng.normal(size=8)))
    return found.mean().item(), found.std(unbiased=False).item()


@check("LN-place")
def count_norms(lab: Lab) -> Found:
    kind = type(norm(lab))
    model = lab.skeleton()
    total = sum(isinstance(module, kind) for module in model.modules())
    inside = sum(isinstance(module, kind) for module in model.trf_blocks[0].modules())
    return Found(total, f"{inside} in each of {len(model.trf_blocks)} blocks and {total - 12 * inside} at the end")


@check("LN-bookwording")
def around_attention(lab: Lab) -> Found:
    """Which norms the attention branch runs through, in the order of computation, until it joins the stream."""
    rows = [row for row in lab.shapes(2, 4) if row["module"].startswith("trf_blocks.0.")]
    order = [row["module"].removeprefix("trf_blocks.0.") for row in rows]
    at, joined = order.index("att"), order.index("shortcut_att")
    kinds = [row["type"] for row in rows]
    norm_type = type(norm(lab)).__name__
    where = [word for word, part in (("before", kinds[:at]), ("after", kinds[at:joined])) if norm_type in part]
    passed = " -> ".join(name for name in order[: joined + 1] if "." not in name)
    return Found(
        " and ".join(where) if len(where) == 2 else f"{''.join(where)} only",
        f"a block computes {passed}, and norm1_output is an identity: no norm follows attention",
    )
