"""The feed-forward layer: tokens stay apart, and its parameters against attention's."""

from __future__ import annotations

from typing import Any

import torch

from gptlab.book.reproduce.lab import Lab
from gptlab.book.reproduce.measured_by import check, checks
from gptlab.book.reproduce.verdicts import Found


def block_size(lab: Lab, part: str, *overrides: str) -> int:
    """Parameters of one block, or of a part of it."""

    def counted() -> int:
        block = lab.skeleton("model.n_layers=1", *overrides).trf_blocks[0]
        return sum(p.numel() for p in block.get_submodule(part).parameters())

    return lab.once(("block", part, overrides), counted)


def feed_forward(lab: Lab, dim: int, activation: str) -> Any:
    part = lab.part("feed_forward", "mlp", emb_dim=dim, activation=lab.part("activation", activation))
    for i, parameter in enumerate(part.parameters()):
        parameter.data = lab.noise(*parameter.shape, seed=i) / dim
    return part.requires_grad_(False)


@check("SHP-noTokenMix")
def tokens_apart(lab: Lab) -> float:
    """Largest change at the other tokens when one is changed."""
    part = feed_forward(lab, 32, "gelu_tanh")
    x = lab.noise(1, 6, 32)
    before, moved = part(x), x.clone()
    moved[0, 2] += 1
    change = (part(moved) - before).abs().amax(-1)[0]
    change[2] = 0
    return change.max().item()


@check("GE-linear")
def collapse(lab: Lab) -> Found:
    """How far f(a) + f(b) - f(0) is from f(a + b): zero for an affine map."""

    def bend(activation: str) -> float:
        f = feed_forward(lab, 16, activation)
        a, b = lab.noise(8, 16), lab.noise(8, 16, seed=1)
        return (f(a) + f(b) - f(torch.zeros_like(a)) - f(a + b)).abs().max().item()

    return Found(bend("identity"), f"with GELU it is {bend('gelu_tanh'):.2g}")


@checks({"BP-ff": "ff", "BP-att": "att", "BP-block": ""})
def size(lab: Lab, part: str) -> int:
    return block_size(lab, part)


@check("BP-12")
def all_blocks(lab: Lab) -> int:
    return sum(p.numel() for p in lab.skeleton().trf_blocks.parameters())


@check("BP-ratio")
def ratio(lab: Lab) -> float:
    return block_size(lab, "ff") / block_size(lab, "att")


@check("BP-share")
def share(lab: Lab) -> Found:
    ff, att, block = (block_size(lab, part) for part in ("ff", "att", ""))
    return Found(100 * ff / block, f"of a block with its norms; without them {100 * ff / (ff + att):.3f}%")


@check("BP-other")
def rest(lab: Lab) -> Found:
    ff, att, block = (block_size(lab, part) for part in ("ff", "att", ""))
    return Found(block - att, f"{block:,} - {att:,} = {block - att:,}: the two norms have {block - att - ff:,} of them")


@check("BP-2x")
def difference_at_two(lab: Lab) -> int:
    return block_size(lab, "ff", "ablation=expansion_2") - block_size(lab, "att")


@check("BP-2xwhy")
def biases_at_two(lab: Lab) -> Found:
    block = lab.skeleton("ablation=expansion_2").trf_blocks[0]
    sizes = [block.ff.layers[0].bias.numel(), block.ff.layers[2].bias.numel()]
    out = block.att.out_proj.bias.numel()
    return Found(
        sum(sizes),
        f"the two biases have {sizes[0]:,} + {sizes[1]:,} = {sum(sizes):,}; the difference is that minus the {out:,} "
        f"of attention's own output bias: {sum(sizes) - out:,}",
    )


@check("BP-parity")
def parity(lab: Lab) -> Found:
    return Found(_parity(lab), f"with qkv biases {_parity(lab, 'model.qkv_bias=true'):.6f}")


def _parity(lab: Lab, *overrides: str) -> float:
    """The expansion at which both have as many parameters: they grow along a straight line."""
    one, two = (block_size(lab, "ff", f"model.expansion={e}", *overrides) for e in (1, 2))
    return 1 + (block_size(lab, "att", *overrides) - one) / (two - one)


@check("BP-intslider")
def whole_expansions(lab: Lab) -> Any:
    attention = block_size(lab, "att")
    return [e for e in range(1, 9) if block_size(lab, "ff", f"model.expansion={e}") == attention] or "none"
