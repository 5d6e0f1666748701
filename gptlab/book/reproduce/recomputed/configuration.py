"""Configuration: the book's keys, heads, dropout."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from gptlab import streams
from gptlab.book.reproduce.lab import Lab
from gptlab.book.reproduce.measured_by import check, checks
from gptlab.book.reproduce.verdicts import Found
from gptlab.config import ModelConfig
from gptlab.model.slots import with_dropout_sites

BOOK_KEYS = ("vocab_size", "context_length", "emb_dim", "n_heads", "n_layers", "drop_rate", "qkv_bias")


@checks({f"CFG-{key}": key for key in BOOK_KEYS} | {"CFG-noffn": "expansion"})
def key(lab: Lab, name: str) -> Any:
    return getattr(lab.config().model, name)


@check("CFG-keys")
def keys(lab: Lab) -> Any:
    """The schema's keys up to the first that the book does not have, if they alone make the very same model."""
    model = lab.config().model
    names = [f.name for f in dataclasses.fields(ModelConfig)]
    first = names[: names.index("architecture")]
    alone = ModelConfig(**{name: getattr(model, name) for name in first})
    return len(first) if with_dropout_sites(alone) == with_dropout_sites(model) else "more keys decide"


@check("CFG-headdim")
def head_width(lab: Lab) -> int:
    attention = lab.skeleton().trf_blocks[0].att
    return attention.W_query.out_features // attention.n_heads


@check("CFG-dropsites")
def dropout_sites(lab: Lab) -> int:
    model = lab.config().model
    sites = with_dropout_sites(model)
    names = [f.name for f in dataclasses.fields(sites) if f.name.startswith("drop_") and f.name != "drop_rate"]
    return sum(getattr(sites, name) == model.drop_rate for name in names)


@check("CFG-dropfrac")
def dropped(lab: Lab) -> Found:
    dropout = lab.skeleton().drop_emb.train()
    with streams.forked(lab.seed, "dropout"):
        kept = dropout(torch.ones(1_000_000))
    return Found((kept == 0).float().mean().item(), f"what is kept is scaled by {kept.max():.4f}")


@check("CFG-dropeval")
def eval_mode(lab: Lab) -> str:
    model = lab.build("model=tiny")
    ids = torch.arange(16)[None]

    def twice() -> bool:
        with torch.no_grad(), streams.forked(lab.seed, "dropout"):
            return torch.equal(model(ids), model(ids))

    in_eval = twice()
    model.train()
    return "equal" if in_eval and not twice() else "different"


@check("CFG-layerparam")
def square_layer(lab: Lab) -> int:
    model = lab.skeleton("model.emb_dim=2048", "model.n_heads=16", "model.n_layers=1")
    return model.trf_blocks[0].att.W_query.weight.numel()


@check("CFG-117")
def smallest(lab: Lab) -> Found:
    millions = lab.counts("ablation=as_released")["parameters"] / 1e6
    return Found(millions, f"{millions:.2f} million, tied and with qkv biases as released")
