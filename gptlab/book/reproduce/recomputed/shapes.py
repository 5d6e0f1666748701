"""Shapes: from two texts to logits, module by module."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import torch

from gptlab.book.reproduce.lab import Lab
from gptlab.book.reproduce.measured_by import check, checks
from gptlab.book.reproduce.verdicts import Found

TEXTS = ("Every effort moves you", "Every day holds a")


@check("SHP-in")
def batch(lab: Lab) -> tuple[int, ...]:
    rows = [lab.tokenizer.encode(text) for text in TEXTS]
    return (len(rows), *{len(row) for row in rows})


@checks(
    {
        "SHP-tok": ("tok_emb", 2, 4),
        "SHP-b8": ("out_head", 8, 1024),
        "SHP-four": ("out_head", 1, 4),
        "SHP-ff233": ("trf_blocks.0.ff", 2, 3),
    }
)
def traced(lab: Lab, module: str, batch_size: int, context: int) -> tuple[int, ...]:
    return lab.shape(module, batch_size, context)


@check("SHP-pos")
def positions(lab: Lab) -> Any:
    """The shape, if what is added is the same for both texts: then the texts differ by their token vectors alone."""
    model = lab.build("model.n_layers=0", "model.vocab_size=512", "model.norm_placement=none")
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    with torch.no_grad():
        added = model.features(ids) - model.tok_emb(ids)
    same = torch.allclose(added[0], added[1], atol=1e-6) and added[0].abs().max() > 0
    return lab.shape("pos_emb", 2, 4) if same else "not the same for both"


@check("SHP-block")
def every_block(lab: Lab) -> Any:
    found = set(_of_blocks(lab))
    return found.pop() if len(found) == 1 else sorted(found)


@check("SHP-twelve")
def equal_rows(lab: Lab) -> int:
    return _of_blocks(lab).count((2, 4, lab.config().model.emb_dim))


def _of_blocks(lab: Lab) -> list[tuple[int, ...]]:
    return [row["output_shape"] for row in lab.shapes(2, 4) if re.fullmatch(r"trf_blocks\.\d+", row["module"])]


@check("SHP-logits")
def logits(lab: Lab) -> Any:
    found = {lab.shapes(2, 4, *overrides)[-1]["output_shape"] for overrides in ((), ("model=dummy",))}
    return found.pop() if len(found) == 1 else sorted(found)


@check("SHP-b8bytes")
def bytes_of_logits(lab: Lab) -> Found:
    row = lab.shapes(8, 1024)[-1]
    return Found(row["bytes"], f"{row['elements']:,} numbers, {row['bytes'] / 2**30:.4f} GiB")


@check("SHP-hid")
def hidden(lab: Lab) -> int:
    return lab.shape("trf_blocks.0.ff.layers.0", 2, 4)[-1]


@check("SHP-ff4")
def four_features(lab: Lab) -> tuple[int, ...]:
    return lab.shape("trf_blocks.0.ff.layers.0", 1, 2, "model.emb_dim=4", "model.n_heads=1", "model.n_layers=1")


@check("SHP-24")
def additions(lab: Lab) -> int:
    return sum(row["type"] == "Add" for row in lab.shapes(2, 4))


@check("SHP-widthchange")
def width_changes(lab: Lab) -> Found:
    """The parameters of the modules of the top level that put out another width than they take in."""
    model = lab.skeleton()
    widths = {row["module"]: row["output_shape"][-1] for row in lab.shapes(2, 4)}
    way = ["tok_emb", "drop_emb", *(f"trf_blocks.{i}" for i in range(len(model.trf_blocks))), "final_norm", "out_head"]
    changed = [after for before, after in pairwise(way) if widths[before] != widths[after]]
    size = sum(p.numel() for name in changed for p in model.get_submodule(name).parameters())
    return Found(size, f"width changes in {', '.join(changed)}")


@check("SHP-identity")
def nothing_inside(lab: Lab) -> str:
    model = lab.build("model=dummy", "model.emb_dim=48")
    with torch.no_grad():
        found = model(torch.tensor([lab.tokenizer.encode(text) for text in TEXTS]))
    inside = sum(p.numel() for p in model.trf_blocks.parameters())
    return "runs" if found.shape == (2, 4, 50257) and not inside else f"{tuple(found.shape)}, {inside} weights inside"
