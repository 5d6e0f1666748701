"""The model's rule for its weights: it holds at the start and after each step, with any optimizer and kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gptlab.config import Config, ModelConfig
from gptlab.model import GPT, build
from gptlab.model.layers import Linear
from gptlab.training.optimizer import Updates
from tests.support.training import toy, trained, weights_hash

SMALL = ModelConfig(vocab_size=61, context_length=16, emb_dim=24, n_heads=3, n_layers=2, n_kv_heads=1)
RULE = "model.after_step=unit_norm"


def vectors(model: nn.Module) -> list[Tensor]:
    """The weight of every layer and table, its vectors as rows."""
    layers = [module for module in model.modules() if isinstance(module, (nn.Linear, nn.Embedding))]
    return [m.weight.mT if isinstance(m, Linear) and m.into_stream else m.weight for m in layers]


def lengths_off(model: nn.Module) -> float:
    return max((rows.norm(dim=1) - 1).abs().max().item() for rows in vectors(model))


@pytest.mark.parametrize("tied", [False, True])
def test_it_holds_from_the_start_and_changes_lengths_alone(tied: bool) -> None:
    plain = build(Config(model=replace(SMALL, tie_weights=tied)))
    model = build(Config(model=replace(SMALL, tie_weights=tied, after_step="unit_norm")))
    assert isinstance(model, GPT) and lengths_off(model) < 1e-6 < lengths_off(plain)
    for mine, theirs in zip(vectors(model), vectors(plain), strict=True):
        torch.testing.assert_close(mine, nn.functional.normalize(theirs, dim=1))
        assert mine.shape[1] == 24 or mine.shape[0] != 24  # the axis that meets the stream
    for name, parameter in model.named_parameters():
        if not name.endswith("weight"):
            assert torch.equal(parameter, plain.get_parameter(name))
    again = build(Config(model=replace(SMALL, tie_weights=tied)))
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), plain.parameters(), strict=True))


@pytest.mark.parametrize("flat", [False, True])
def test_a_step_is_the_optimizers_and_then_the_rule(flat: bool) -> None:
    config = Config(model=replace(SMALL, after_step="unit_norm"))
    model, other = build(config), build(config)
    other.weight_rule = "none"
    found = []
    for each in (model, other):
        assert isinstance(each, GPT)
        updates = Updates(each, config.train, flat=flat)
        each(torch.arange(16)[None]).logsumexp(-1).sum().backward()
        updates.clip()
        updates.set_rate(1.0)
        updates.step()
        found.append(vectors(each))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, nn.functional.normalize(theirs, dim=1))
    assert lengths_off(model) < 1e-6 < lengths_off(other)


def test_a_training_under_the_rule_goes_on_as_it_began(tmp_path: Path) -> None:
    words = (RULE, "train.learning_rate=1e-2", "train.checkpoint_every=2")
    found, model = trained(toy(*words), tmp_path / "a")
    assert lengths_off(model) < 1e-6
    assert found.metrics["final_loss"] < found.metrics["initial_loss"]
    trained(toy(*words, steps=6), tmp_path / "b")
    _, resumed = trained(toy(*words), tmp_path / "b", resume=True)
    assert weights_hash(resumed) == weights_hash(model)
