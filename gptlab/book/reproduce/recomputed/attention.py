"""Attention: its weights, its mask, what positions do, and where norms stand."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlab.book.reproduce.lab import Lab
from gptlab.book.reproduce.measured_by import check
from gptlab.book.reproduce.verdicts import Found
from gptlab.config import Config
from gptlab.model import build
from gptlab.model.block import Block

XIONG = (
    "model=tiny", "model.vocab_size=128", "model.context_length=32", "model.emb_dim=64", "model.n_heads=1",
    "ablation=[relu,xavier]", "model.expansion=1", "model.options.init.embedding_std=1.0",
)  # fmt: skip


def weights(lab: Lab) -> Tensor:
    """(3, 3): causal attention weights for Q = K = V, the lesson's first 12 draws, by the attention component."""
    import numpy as np

    x = torch.from_numpy(np.random.default_rng(lab.seed - 123).normal(size=(3, 4)))[None, None]
    attention = lab.part("attention", "multi_head", emb_dim=4, n_heads=1, causal=True).double()
    return attention.logits(x, x).softmax(-1)[0, 0]


@check("EQ-att")
def printed(lab: Lab) -> list[list[float]]:
    return weights(lab).tolist()


@check("EQ-mask")
def future(lab: Lab) -> float:
    return weights(lab).triu(1).max().item()


@check("EQ-rows")
def row_sums(lab: Lab) -> float:
    return max(weights(lab).sum(-1).tolist(), key=lambda total: abs(total - 1))


@check("EQ-equiv")
def unmasked(lab: Lab) -> float:
    return _permuted(lab, "model.causal=false")


@check("EQ-noequiv")
def masked(lab: Lab) -> float:
    return _permuted(lab)


def _permuted(lab: Lab, *overrides: str) -> float:
    """Largest difference between permuting six tokens before and after an attention layer without positions."""
    model = lab.build("model=tiny", "model.position=none", "model.n_layers=1", *overrides)
    attention = model.trf_blocks[0].att.double()
    x = lab.noise(1, 6, attention.W_query.in_features, seed=lab.seed)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    with torch.no_grad():
        return (attention(x[:, order]) - attention(x)[:, order]).abs().max().item()


@check("EQ-wave")
def wavelengths(lab: Lab) -> Found:
    """In units of 2 pi: 1 / (angle at position 1), read off the table of sines and cosines."""

    def ends(dim: int) -> tuple[float, float]:
        table = lab.part("position", "sinusoidal", context_length=4, emb_dim=dim).table[1].double()
        angles = torch.atan2(table[0::2], table[1::2])
        return (1 / angles.max()).item(), (1 / angles.min()).item()

    small, toy = ends(lab.config().model.emb_dim), ends(lab.config("model=toy_lesson").model.emb_dim)
    return Found(
        small,
        f"the longest is {small[1]:,.0f} times 2 pi at the width of GPT-2 small, {toy[1]:,.0f} at the toy's 8: "
        "10,000 is the limit of a large width",
    )


@check("EQ-heads")
def toy_heads(lab: Lab) -> int:
    attention = lab.skeleton("model=toy_lesson").trf_blocks[0].att
    return attention.W_query.out_features // attention.n_heads


@check("SHP-allmix")
def mixing(lab: Lab) -> str:
    """Which logits move when the first token changes: with attention the later ones too, without it its own only."""

    def moved(*overrides: str) -> list[int]:
        model = lab.build("model=tiny", *overrides)
        with torch.no_grad():
            one, other = model(torch.tensor([[1, 2, 3, 4]])), model(torch.tensor([[9, 2, 3, 4]]))
        return [i for i in range(4) if not torch.equal(one[0, i], other[0, i])]

    found = moved(), moved("model.attention=identity")
    return "attention only" if found == ([0, 1, 2, 3], [0]) else f"{found[0]} with attention, {found[1]} without"


@check("EQ-preln")
def placement(lab: Lab) -> Found:
    """gptlab's blocks against torch's own, with the same weights."""
    differences = {}
    for name, overrides in (("pre", ()), ("post", ("ablation=post_ln",))):
        model = lab.build("model=tiny", *overrides)
        differences[name] = _against_torch(lab, model.trf_blocks[0], norm_first=name == "pre")
    final = not isinstance(lab.skeleton().final_norm, nn.Identity)
    agree = max(differences.values()) < 1e-5
    return Found(
        "pre + final" if agree and final else "something else",
        f"differences from torch's own blocks: {differences['pre']:.1g} (pre), {differences['post']:.1g} (post)",
    )


def _against_torch(lab: Lab, block: Block, norm_first: bool) -> float:
    att: Any = block.att
    ff: Any = block.ff
    assert att is not None and ff is not None
    width, hidden = att.W_query.in_features, ff.layers[0].out_features
    other = nn.TransformerEncoderLayer(
        width, att.n_heads, hidden, 0.0, lambda x: F.gelu(x, approximate="tanh"), norm_first=norm_first,
        batch_first=True,
    ).eval()  # fmt: skip
    with torch.no_grad():
        other.self_attn.in_proj_weight.copy_(torch.cat([m.weight for m in (att.W_query, att.W_key, att.W_value)]))
        for theirs, ours in (
            (other.self_attn.out_proj, att.out_proj), (other.linear1, ff.layers[0]), (other.linear2, ff.layers[2])
        ):  # fmt: skip
            theirs.weight.copy_(ours.weight)
            theirs.bias.copy_(ours.bias)
        x = lab.noise(2, 8, width).float()
        mask = nn.Transformer.generate_square_subsequent_mask(8)
        return (block(x) - other(x, src_mask=mask, is_causal=True)).abs().max().item()


@check("EQ-xiong")
def gradients_against_depth(lab: Lab) -> tuple[float, float]:
    return _exponent(lab), _exponent(lab, "model.norm_placement=post")


def _exponent(lab: Lab, *overrides: str) -> float:
    """Slope of log |gradient of the last block's second matrix| over log depth, mean of three seeds."""
    depths, sizes = (4, 8, 16, 32), []
    for depth in depths:
        total = 0.0
        for seed in (1, 2, 3):
            config = lab.config(*XIONG, f"model.n_layers={depth}", *overrides)
            config.seed = seed
            total += _last_gradient(config)
        sizes.append(total)
    x, y = (torch.tensor(values).double().log() for values in (depths, sizes))
    x, y = x - x.mean(), y - y.mean()
    return ((x * y).sum() / (x * x).sum()).item()


def _last_gradient(config: Config) -> float:
    model: Any = build(config)
    generator = torch.Generator().manual_seed(config.seed)
    inputs, targets = (torch.randint(config.model.vocab_size, (4, 32), generator=generator) for _ in range(2))
    F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
    gradient = model.trf_blocks[-1].ff.layers[2].weight.grad
    return math.sqrt(gradient.square().sum().item())
