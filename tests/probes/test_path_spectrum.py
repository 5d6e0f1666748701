"""The path spectrum: a gradient as a sum over the number of branches that it came through."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gptlab
from gptlab.config import Config, ModelConfig
from gptlab.data.batches import Batch
from gptlab.model import build
from gptlab.probes import spectrum as module
from gptlab.probes.gradients import loss_of
from gptlab.probes.spectrum import rows, spectrum
from gptlab.probes.subject import Subject
from tests.support.refusals import refused

SMALL = ModelConfig(vocab_size=31, context_length=12, emb_dim=16, n_heads=2, n_layers=3)


def batch() -> Batch:
    ids = torch.randint(31, (2, 11), generator=torch.Generator().manual_seed(1))
    return Batch(ids[:, :-1], ids[:, 1:])


def shares(found: list[dict[str, Any]], layer: int | None, part: str) -> list[float]:
    return [row["value"] for row in found if (row["layer"], row["part"]) == (layer, part)]


def test_the_published_shares_of_the_five_layer_network() -> None:
    config = gptlab.compose(["model=deep_mlp", "seed=123"])
    subject = Subject(config)
    found = rows(spectrum(subject.model, loss_of, subject.source.batch(1, 1)))
    assert [round(share, 2) for share in shares(found, 0, "weight")] == [0.94, 0.43, 0.12, 0.01]
    assert shares(found, 3, "weight") == pytest.approx([1.0])  # nothing but the plain last layer comes after it


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm_placement": "post"}, {"norm_placement": "deepnorm"}, {"layout": "parallel"}, {"n_layers": 0},
     {"layout": "attention_only"}, {"shortcut": "none"}, {"shortcut": "skipinit"}, {"tie_weights": True},
     {"norm_placement": "peri"}, {"norm_placement": "none", "position": "none"}],
    ids=str,
)  # fmt: skip
def test_the_parts_add_up_to_the_plain_gradient(changes: dict[str, Any]) -> None:
    model = build(Config(model=replace(SMALL, **changes))).double()
    found = spectrum(model, loss_of, batch())
    loss_of(model, batch()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(found[name].sum(0), parameter.grad, rtol=0, atol=1e-12)


def test_one_block_by_hand() -> None:
    """With attention's branch and the feed-forward branch alone, the token embedding has 1 + 2 + 1 paths."""
    model = build(Config(model=replace(SMALL, n_layers=1))).double()
    parts = spectrum(model, loss_of, batch())["tok_emb.weight"]
    assert len(parts) == 3
    block, data = model.trf_blocks[0], batch()

    def gradient(first: float, second: float) -> torch.Tensor:
        """Of the token embedding, with each branch's backward pass scaled."""
        x = model.tok_emb(data.inputs) + model.pos_emb.weight[:10]
        a = block.att(block.norm1(x))
        x = x + a.detach() + first * (a - a.detach())
        f = block.ff(block.norm2(x))
        x = x + f.detach() + second * (f - f.detach())
        loss = F.cross_entropy(model.out_head(model.final_norm(x)).flatten(0, 1), data.targets.flatten())
        return torch.autograd.grad(loss, model.tok_emb.weight)[0]

    g00, g10, g01, g11 = (gradient(*ways) for ways in ((0, 0), (1, 0), (0, 1), (1, 1)))
    torch.testing.assert_close(parts[0], g00)
    torch.testing.assert_close(parts[1], (g10 - g00) + (g01 - g00))
    torch.testing.assert_close(parts[2], g11 - g10 - g01 + g00)


def test_the_number_of_parts_is_the_number_of_later_branches() -> None:
    found = spectrum(build(Config(model=SMALL)), loss_of, batch())
    for name, expected in {
        "tok_emb.weight": 7, "trf_blocks.0.att.W_query.weight": 6, "trf_blocks.0.norm2.scale": 5,
        "trf_blocks.2.ff.layers.0.bias": 1, "out_head.weight": 1, "final_norm.scale": 1,
    }.items():  # fmt: skip
        assert len(found[name]) == expected, name
    last = rows(found)
    assert shares(last, 2, "feed_forward") == pytest.approx([1.0])


def test_the_model_is_left_alone() -> None:
    model = build(Config(model=SMALL))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    spectrum(model, loss_of, batch())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_too_many_branches_are_refused_before_anything_runs() -> None:
    with refused("paths-too-many", key="probes.gradients.paths", value="true", count=24, most_paths=16):
        gptlab.compose(["probes.gradients.paths=true"])
    assert gptlab.compose(["model=tiny", "model.n_layers=8", "probes.gradients.paths=true"])


def test_too_large_models_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "physical_memory", lambda: 1000)
    with refused("paths-memory", key="probes.gradients.paths", value="true", copies=9):
        spectrum(build(Config(model=SMALL)), loss_of, batch())


def test_a_branch_that_needs_no_gradient_is_passed_by() -> None:
    model = build(Config(model=replace(SMALL, attention="identity", feed_forward="identity")))
    parts = spectrum(model, loss_of, batch())
    assert isinstance(model, nn.Module) and parts["tok_emb.weight"].isfinite().all()
