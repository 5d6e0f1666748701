"""Models in train mode, where each dropout has a hand computation: p = 0 drops nothing, p = 1 drops all.

At p = 1 a site's output is exactly zero, so what is left can be written down for each placement of the norms: where a
dropout stands, and on which side of a norm, decides what comes out.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gptlab import compose
from gptlab.model import build
from gptlab.model.block import PLACEMENTS
from gptlab.registry import components

SITES = ("drop_embedding", "drop_attention", "drop_shortcut", "drop_feed_forward")
SIZES = ["model=tiny", "model.n_layers=2"]


def in_train_mode(*overrides: str) -> tuple[nn.Module, Tensor]:
    """A model whose norms and biases are no longer ones and zeros, and ids that fit it."""
    config = compose([*SIZES, "model.drop_rate=0", *overrides])
    model = build(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() < 2:
                weight += torch.randn(weight.shape, generator=generator) / 2
    ids = torch.randint(config.model.vocab_size, (2, 7), generator=generator)
    return model.train(), ids


def bias_alone(module: nn.Module) -> Callable[..., Tensor]:
    """What a linear layer gives of zeros."""
    return lambda x: torch.zeros_like(x) if module.bias is None else module.bias.expand_as(x)


def by_hand(model: nn.Module, ids: Tensor, placement: str, site: str) -> Tensor:
    """The logits of a serial model in which one site drops everything."""
    place = PLACEMENTS[placement]
    x = model.tok_emb(ids) + model.pos_emb.weight[: ids.shape[1]]
    x = model.emb_norm(x)
    if site == "drop_embedding":
        x = torch.zeros_like(x)
    for number, block in enumerate(model.trf_blocks):
        attention = bias_alone(block.att.out_proj) if site == "drop_attention" else block.att
        feed_forward = bias_alone(block.ff.layers[2]) if site == "drop_feed_forward" else block.ff
        branches = ((attention, block.norm1, block.norm1_output), (feed_forward, block.norm2, block.norm2_output))
        for branch, norm, norm_output in branches:
            y = branch(norm(x) / (number + 1) ** 0.5 if placement == "lns" else x if place.after else norm(x))
            y = norm_output(y)
            if site == "drop_shortcut":
                y = torch.zeros_like(y)
            x = (2 * len(model.trf_blocks)) ** 0.25 * x + y if placement == "deepnorm" else x + y
            x = norm(x) if place.after else x
    return model.out_head(model.final_norm(x))


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("site", SITES)
def test_a_site_that_drops_all(placement: str, site: str) -> None:
    model, ids = in_train_mode(f"model.norm_placement={placement}", f"model.{site}=1")
    with torch.random.fork_rng():
        found = model(ids)
    torch.testing.assert_close(found, by_hand(model, ids, placement, site), rtol=1e-5, atol=1e-5)
    assert float((found - model.eval()(ids)).detach().abs().max()) > 1e-3, "train mode dropped nothing"


@pytest.mark.parametrize("slot", ["norm", "activation", "attention", "feed_forward", "position", "shortcut"])
def test_nothing_dropped_is_evaluation_bit_for_bit(slot: str) -> None:
    for name in components(slot):
        model, ids = in_train_mode(f"model.{slot}={name}")
        assert torch.equal(model(ids), model.eval()(ids)), name


@pytest.mark.parametrize("layout", ["serial", "parallel", "attention_only", "feed_forward_only"])
@pytest.mark.parametrize("site", SITES)
def test_masks_are_fresh_and_evaluation_has_none(layout: str, site: str) -> None:
    if (layout, site) in (("attention_only", "drop_feed_forward"), ("feed_forward_only", "drop_attention")):
        return
    model, ids = in_train_mode(f"model.layout={layout}", f"model.{site}=0.5")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first, second = model(ids), model(ids)
        torch.manual_seed(1)
        again = model(ids)
    assert torch.equal(first, again) and not torch.equal(first, second)
    model.eval()
    assert torch.equal(model(ids), model(ids))
