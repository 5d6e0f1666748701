"""Short convolutions: torch's own, and where they stand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gptlab.config import Config, ModelConfig
from gptlab.declare.to_config import settled_and_checked
from gptlab.model import GPT, build, skeleton
from gptlab.model.across_tokens.canon import Canon
from gptlab.model.roles import parameter_roles
from tests.support.refusals import refused

SMALL = ModelConfig(vocab_size=61, context_length=16, emb_dim=24, n_heads=3, n_layers=2, drop_rate=0.0)
BOTH = {"block": {"canon_attention": True, "canon_feed_forward": True}}


def make(**changes: Any) -> GPT:
    model = build(Config(model=replace(SMALL, **changes)))
    assert isinstance(model, GPT)
    return model.double()


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_it_is_torchs_depthwise_convolution_beside_the_stream() -> None:
    with torch.random.fork_rng():
        canon = Canon(24).double()
    x = randn(2, 9, 24).requires_grad_()
    kernel = canon.weight.flip(0).T[:, None]  # torch's has the oldest token first
    expected = x + F.conv1d(F.pad(x.mT, (3, 0)), kernel, groups=24).mT
    torch.testing.assert_close(canon(x), expected, rtol=1e-12, atol=1e-12)
    found, wanted = (torch.autograd.grad(y.square().sum(), (x, canon.weight)) for y in (canon(x), expected))
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_where_they_stand(placement: str) -> None:
    b, x = make(options=BOTH, norm_placement=placement).trf_blocks[0], randn(2, 9, 24)
    if placement == "pre":
        y = x + b.att(b.canon_att(b.norm1(x)))
        expected = y + b.ff(b.canon_ff(b.norm2(y)))
    else:
        y = b.norm1(x + b.att(b.canon_att(x)))
        expected = b.norm2(y + b.ff(b.canon_ff(y)))
    torch.testing.assert_close(b(x), expected, rtol=1e-12, atol=1e-12)
    assert b.canon_att in b.branches(0)[0].inside and b.canon_ff in b.branches(0)[1].inside


def test_what_they_cost_and_what_they_are() -> None:
    count = lambda **changes: sum(p.numel() for p in skeleton(replace(SMALL, **changes)).parameters())  # noqa: E731
    assert count(options=BOTH) - count() == 2 * 2 * 4 * 24
    assert parameter_roles(skeleton(replace(SMALL, options=BOTH)))["trf_blocks.0.canon_ff.weight"] == "gain"
    plain, canon = make().state_dict(), make(options=BOTH).state_dict()
    assert all(torch.equal(plain[name], canon[name]) for name in plain)
    weights = torch.cat(
        [canon[f"trf_blocks.{i}.canon_{site}.weight"].flatten() for i in (0, 1) for site in ("att", "ff")]
    )
    assert weights.abs().max() <= 0.5 and abs(weights.std().item() - 0.5 / 3**0.5) < 0.03
    assert len(set(weights.tolist())) == len(weights)


def test_a_branch_that_is_not_there_has_none() -> None:
    layers = {"0": {"layout": "attention_only", "options": {"block": {"canon_feed_forward": True}}}}
    with refused("unknown-name", value="canon_feed_forward", allowed=["canon_attention"]):
        settled_and_checked(Config(model=replace(SMALL, layers=layers)))
