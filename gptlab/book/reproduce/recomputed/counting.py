"""Parameters of whole models: by part, by size, tied and untied."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from gptlab.book.reproduce.lab import Lab
from gptlab.book.reproduce.measured_by import check, checks
from gptlab.book.reproduce.verdicts import Found

SIZES = ("medium", "large", "xl")
TIED, RELEASED, TOY = "ablation=tied", "ablation=as_released", "model=toy_lesson"


@checks(
    {
        "MP-total": "parameters",
        "MP-tok": "parameters/token_embedding",
        "MP-pos": "parameters/position",
        "MP-final": "parameters/final_norm",
        "MP-head": "parameters/head",
        "MP-tied": ("parameters", TIED),
        "MP-hf": ("parameters", RELEASED),
        "MP-xlu": ("parameters", "model=gpt2_xl"),
        "MP-xlt": ("parameters", "model=gpt2_xl", TIED),
        "MP-bytes": "bytes",
        "MP-mib": "mib",
        "MP-622": "mib",
        "TP-emb": ("parameters/token_embedding", TOY),
        "TP-att": ("parameters/attention", TOY),
        "TP-mlp": ("parameters/feed_forward", TOY),
        "TP-total": ("parameters", TOY),
        "TP-gpt3s": ("parameters", "model=gpt3_small"),
        "TP-gpt3": ("parameters", "model=gpt3_175b"),
        "TP-gpt2": ("parameters", RELEASED),
    }
    | {f"MP-ex42{size}u": ("parameters", f"model=gpt2_{size}") for size in SIZES}
    | {f"MP-ex42{size}t": ("parameters", f"model=gpt2_{size}", TIED) for size in SIZES}
    | {f"MP-ex42{size}q": ("parameters", f"model=gpt2_{size}", RELEASED) for size in SIZES}
    | {f"MP-ex42{size}m": ("mib", f"model=gpt2_{size}") for size in SIZES}
)
def counted(lab: Lab, metric: str, *overrides: str) -> float | int:
    return lab.counts(*overrides)[metric]


@check("MP-shape")
def shapes(lab: Lab) -> Any:
    model = lab.skeleton()
    found = {tuple(model.tok_emb.weight.shape), tuple(model.out_head.weight.shape)}
    return found.pop() if len(found) == 1 else sorted(found)


@check("MP-two")
def two_tables(lab: Lab) -> int:
    model = lab.skeleton()
    return model.tok_emb.weight.numel() + model.out_head.weight.numel()


@checks(
    {
        "MP-two%": (("token_embedding", "head"),),
        "MP-blk%": (("attention", "feed_forward", "norm"),),
        "MP-head%": (("head",),),
        "MP-headxl%": (("head",), "model=gpt2_xl"),
    }
)
def share(lab: Lab, parts: tuple[str, ...], *overrides: str) -> float:
    counts = lab.counts(*overrides)
    return 100 * sum(counts[f"parameters/{part}"] for part in parts) / counts["parameters"]


@check("MP-qkv")
def qkv_biases(lab: Lab) -> float:
    return lab.counts("ablation=qkv_bias")["parameters"] - lab.counts()["parameters"]


@check("MP-unit")
def unit(lab: Lab) -> Found:
    size = lab.counts()["bytes"]
    units = {"MiB": size / 2**20, "MB": size / 10**6}
    fits = [name for name, value in units.items() if round(value) == 622]
    return Found("; ".join(fits) or "neither", ", ".join(f"{value:.2f} {name}" for name, value in units.items()))


@checks({f"MP-hd-{size}": f"model=gpt2_{size if size != 'small' else '124m'}" for size in ("small", *SIZES)})
def head_width(lab: Lab, model: str) -> float:
    config = lab.config(model).model
    return config.emb_dim / config.n_heads


def _millions(lab: Lab, *overrides: str) -> tuple[float, ...]:
    return tuple(lab.counts(f"model=gpt2_{size}", *overrides)["parameters"] / 1e6 for size in SIZES)


def _said(millions: tuple[float, ...]) -> str:
    return ", ".join(f"{value:,.1f}" for value in millions)


@check("MP-ch4names")
def names_in_chapter_4(lab: Lab) -> Found:
    tied = _millions(lab, TIED)
    return Found(
        tied,
        f"{_said(tied)} million tied, {_said(_millions(lab, RELEASED))} as released, {_said(_millions(lab))} untied: "
        "no way of counting gives the three names, which are those of the first report",
    )


@check("MP-appB")
def names_in_appendix_b(lab: Lab) -> Found:
    medium, large, xl = _millions(lab, TIED)
    return Found(
        f"{medium:.0f}M; {large:.0f}M; {xl / 1000:.1f}B",
        f"{_said((medium, large, xl))} million: the last rounds to {xl / 1000:.1f} billion; 1.5 is cut off",
    )


@check("MP-xlname")
def largest(lab: Lab) -> Found:
    tied, released = _millions(lab, TIED)[-1], _millions(lab, RELEASED)[-1]
    return Found(tied, f"{tied:,.2f} million tied, {released:,.2f} with qkv biases as released")


@check("MP-layersonly")
def what_moves(lab: Lab) -> bool:
    base = lab.counts()

    def moved(override: str) -> set[str]:
        counts = lab.counts(override)
        return {name.partition("/")[2] for name in base if "/" in name and counts[name] != base[name]}

    inside = {"attention", "feed_forward", "norm"}
    every = {name.partition("/")[2] for name in base if "/" in name}
    return moved("model.n_layers=13") == inside and moved("model.emb_dim=1536") == every and len(every) == 7


@check("MP-growth")
def growth(lab: Lab) -> tuple[float, float]:
    """How often the count doubles when a large width doubles."""
    wide, wider = (lab.counts(f"model.emb_dim={12 * 2**n}") for n in (15, 16))
    head = wider["parameters/head"] / wide["parameters/head"]
    inside = [sum(counts[f"parameters/{part}"] for part in ("attention", "feed_forward")) for counts in (wide, wider)]
    return math.log2(head), math.log2(inside[1] / inside[0])


@check("TP-norm")
def toy_norms(lab: Lab) -> float:
    counts = lab.counts(TOY)
    return counts["parameters/norm"] + counts["parameters/final_norm"]


@check("TP-paper")
def gpt3_table(lab: Lab) -> tuple[float, ...]:
    return tuple(lab.counts(f"model={name}")["parameters"] / 1e6 for name in ("gpt3_small", "gpt3_175b"))


@check("TP-kaplan")
def kaplan(lab: Lab) -> Found:
    def share(*overrides: str) -> float:
        config, counts = lab.config(*overrides).model, lab.counts(*overrides)
        outside = ("token_embedding", "position", "head")
        inside = counts["parameters"] - sum(counts.get(f"parameters/{part}", 0) for part in outside)
        return 12 * config.n_layers * config.emb_dim**2 / inside

    toy, large = share(TOY), share("model=gpt3_175b")
    return Found(share(RELEASED), f"{toy:.4f} for the toy, {large:.5f} for GPT-3 175B")


@check("TP-tiesaves")
def saved_by_tying(lab: Lab) -> float:
    return lab.counts()["parameters"] - lab.counts(TIED)["parameters"]


@check("EQ-ln12")
def uniform_loss(lab: Lab) -> float:
    words = lab.config(TOY).model.vocab_size
    return F.cross_entropy(torch.zeros(1, words), torch.tensor([0])).item()
