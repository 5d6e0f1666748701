"""Which weights decay, which ones Muon takes, and the update against torch's own."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from gptlab import compose
from gptlab.config import TrainConfig
from gptlab.probes import Subject
from gptlab.training.optimizer import Updates, _groups


def model(*overrides: str) -> nn.Module:
    return Subject(compose(["model=tiny", *overrides])).model


def decayed(gpt: nn.Module, **given: bool) -> set[str]:
    names = {id(weight): name for name, weight in gpt.named_parameters()}
    groups = _groups(gpt, TrainConfig(weight_decay=0.1, **given))
    assert sorted(id(w) for g in groups for w in g["params"]) == sorted(names)  # each weight once
    return {names[id(weight)] for group in groups if group["weight_decay"] for weight in group["params"]}


def test_matrices_decay_and_vectors_do_not() -> None:
    gpt = model()
    assert decayed(gpt) == {name for name, weight in gpt.named_parameters() if weight.dim() == 2}


def test_embeddings_are_a_choice() -> None:
    gpt = model()
    tables = {"tok_emb.weight", "pos_emb.weight"}
    assert decayed(gpt) - decayed(gpt, decay_embeddings=False) == tables
    assert "tok_emb.weight" not in decayed(model("ablation=tied"), decay_embeddings=False)  # the head is the table


def test_norms_and_biases_are_a_choice() -> None:
    gpt = model()
    assert decayed(gpt, decay_vectors=True) == {name for name, _ in gpt.named_parameters()}


def test_muon_takes_the_matrices_of_the_blocks() -> None:
    gpt = model()
    names = {id(weight): name for name, weight in gpt.named_parameters()}
    updates = Updates(gpt, TrainConfig(optimizer="muon"))
    assert [type(optimizer).__name__ for optimizer in updates.optimizers] == ["AdamW", "Muon"]
    rest, taken = (
        {names[id(weight)] for group in optimizer.param_groups for weight in group["params"]}
        for optimizer in updates.optimizers
    )
    assert taken == {n for n, w in gpt.named_parameters() if n.startswith("trf_blocks") and w.dim() == 2}
    assert rest | taken == set(names.values()) and not rest & taken


@pytest.mark.parametrize("clip", [None, 0.5])
def test_steps_are_those_of_torch(clip: float | None) -> None:
    gpt = model()
    plain = copy.deepcopy(gpt)
    updates = Updates(gpt, TrainConfig(weight_decay=0.1, clip=clip, learning_rate=1e-2))
    matrices = [weight for weight in plain.parameters() if weight.dim() == 2]
    vectors = [weight for weight in plain.parameters() if weight.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, lr=1e-2)
    ids = torch.arange(60).view(2, 30)
    for factor in (1.0, 0.5, 0.25):
        gpt(ids).square().mean().backward()
        plain(ids).square().mean().backward()
        norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), clip or float("inf"))
        assert updates.clip().item() == pytest.approx(norm.item(), rel=1e-5)
        updates.set_rate(factor)
        for group in reference.param_groups:
            group["lr"] = 1e-2 * factor
        updates.step()
        reference.step()
        reference.zero_grad()
    for one, other in zip(gpt.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_a_weight_that_nothing_used_has_a_gradient_of_zero() -> None:
    gpt = model()
    updates = Updates(gpt, TrainConfig(weight_decay=0.0))
    before = gpt.get_parameter("pos_emb.weight").clone()
    gpt.get_parameter("out_head.weight").sum().backward()
    assert updates.clip().item() > 0
    updates.step()
    assert torch.equal(gpt.get_parameter("pos_emb.weight"), before)


def test_rates_that_the_init_scales() -> None:
    gpt = model()
    plain = {name: weight.detach().clone() for name, weight in gpt.named_parameters()}
    slow = next(name for name in plain if name.endswith("W_key.weight"))
    updates = Updates(gpt, TrainConfig(weight_decay=0.0, clip=None, learning_rate=1e-2), {slow: 0.25})
    updates.set_rate(0.5)
    gpt(torch.tensor([[1, 2, 3]])).logsumexp(-1).sum().backward()
    updates.clip()
    updates.step()
    moved = {name: (weight - plain[name]).abs().max().item() for name, weight in gpt.named_parameters()}
    assert moved[slow] == pytest.approx(0.25 * 0.5e-2, rel=1e-3)  # Adam's first step is the rate itself
    assert moved[slow.replace("key", "value")] == pytest.approx(0.5e-2, rel=1e-3)
