"""Auxiliary losses: part of the gradient, recorded by name, in no loss that is reported."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gptlab.kernels
from gptlab import register
from gptlab.config import Config
from gptlab.model import build
from gptlab.model.contract import Loss
from gptlab.model.feed_forward import MLP
from gptlab.probes import Subject
from tests.support.training import numbers, toy, trained, weights_hash


class Sized(NamedTuple):
    y: Tensor
    size: Loss
    absent: Loss | None


class SizedMLP(MLP):
    """An MLP that is asked to keep its output small: weight * mean square."""

    def __init__(self, emb_dim: int, activation: nn.Module, weight: float = 0.5) -> None:
        super().__init__(emb_dim, activation)
        self.weight = weight

    def forward(self, x: Tensor) -> Sized:  # type: ignore[override]
        y = super().forward(x)
        return Sized(y, self.weight * y.square().mean(), None)


@pytest.fixture(autouse=True)
def _known(scratch_registry: None) -> None:
    register("feed_forward", "test_sized_mlp")(SizedMLP)


def plain(*overrides: str, steps: int = 6) -> Config:
    return toy("train.log_every=1", "model.drop_rate=0", *overrides, steps=steps)


def sized(*overrides: str, steps: int = 6) -> Config:
    return plain("model.feed_forward=test_sized_mlp", *overrides, steps=steps)


def test_it_is_recorded_by_name_and_in_no_reported_loss(tmp_path: Path) -> None:
    found, _ = trained(sized(), tmp_path / "a")
    without, _ = trained(plain(), tmp_path / "b")
    lines, others = (numbers(tmp_path / name) for name in "ab")
    recorded = [line["metrics"]["auxiliary_loss/size"] for line in lines[1:]]
    assert all(0 < value < 10 for value in recorded) and recorded[-1] == found.metrics["auxiliary_loss/size"]
    assert not any("auxiliary_loss/absent" in line["metrics"] for line in lines)
    # Before the first update the two are one model: the same losses, to the bit.
    assert lines[0]["metrics"]["validation_loss"] == others[0]["metrics"]["validation_loss"]
    assert lines[1]["metrics"]["train_loss"] == others[1]["metrics"]["train_loss"]
    assert found.metrics["initial_loss"] == without.metrics["initial_loss"]
    assert found.metrics["final_loss"] == lines[-1]["metrics"]["validation_loss"] != without.metrics["final_loss"]


def test_it_is_what_training_differentiates(tmp_path: Path) -> None:
    config = sized("train.optimizer=sgd", "train.momentum=0", "train.weight_decay=0", "train.clip=null", steps=1)
    _, model = trained(config, tmp_path)
    batch = Subject(config).source.train_batch(0, 4, config.train.context or 6, config.seed)  # type: ignore[union-attr]
    by_hand = build(config)
    sizes: list[Tensor] = []
    for block in by_hand.stream_layers():
        block.ff.register_forward_hook(lambda _m, _x, y: sizes.append(y.size))  # type: ignore[union-attr]
    loss = F.cross_entropy(by_hand(batch.inputs).flatten(0, 1), batch.targets.flatten())
    assert len(sizes) == len(by_hand.stream_layers())
    (loss + torch.stack(sizes).sum()).backward()
    for name, weight in by_hand.named_parameters():
        assert weight.grad is not None
        expected = weight.detach() - config.train.learning_rate * weight.grad
        torch.testing.assert_close(model.get_parameter(name).detach(), expected, rtol=1e-5, atol=1e-8)
    assert numbers(tmp_path)[-1]["metrics"]["auxiliary_loss/size"] == pytest.approx(
        torch.stack(sizes).sum().item(), rel=1e-5
    )


@pytest.mark.parametrize("kernels", ["{loss: plain}", "{loss: chunked}"])
def test_the_z_loss_of_the_head_is_one(kernels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded by its name, part of the gradient, in no loss that is reported, the same in micro-batches."""
    monkeypatch.setattr(gptlab.kernels, "chunk_rows", lambda vocab_size: 5)
    sgd = ("train.optimizer=sgd", "train.momentum=0", "train.weight_decay=0", "train.clip=null")
    wanted = ("model.options.head.z_loss=0.1", f"train.kernels={kernels}", *sgd)
    found, model = trained(plain(*wanted, steps=1), tmp_path / "a")
    without, _ = trained(plain(*sgd, steps=1), tmp_path / "b")
    config = plain(*wanted, steps=1)
    batch = Subject(config).source.train_batch(0, config.train.batch_size, config.train.context or 6, config.seed)  # type: ignore[union-attr]
    by_hand = build(config)
    logits = by_hand(batch.inputs).flatten(0, 1)
    z_loss = 0.1 * logits.exp().sum(-1).log().square().mean()
    (F.cross_entropy(logits, batch.targets.flatten()) + z_loss).backward()
    for name, weight in by_hand.named_parameters():
        assert weight.grad is not None
        expected = weight.detach() - config.train.learning_rate * weight.grad
        torch.testing.assert_close(model.get_parameter(name).detach(), expected, rtol=1e-5, atol=1e-8)
    assert found.metrics["auxiliary_loss/z_loss"] == pytest.approx(z_loss.item(), rel=1e-5)
    one, other = (numbers(tmp_path / name)[1]["metrics"]["train_loss"] for name in "ab")
    assert one == pytest.approx(other, rel=1e-6) and "auxiliary_loss/z_loss" not in without.metrics
    trained(plain(*wanted, "train.accumulate=2", steps=1), tmp_path / "c")
    assert numbers(tmp_path / "c")[1]["metrics"] == pytest.approx(numbers(tmp_path / "a")[1]["metrics"], rel=1e-4)


def test_micro_batches_give_their_mean(tmp_path: Path) -> None:
    """A mean over tokens is the same in one part and in two."""
    for parts in (1, 2):
        trained(sized(f"train.accumulate={parts}", "train.optimizer=sgd", steps=3), tmp_path / str(parts))
    for one, two in zip(numbers(tmp_path / "1"), numbers(tmp_path / "2"), strict=True):
        assert one["metrics"] == pytest.approx(two["metrics"], rel=1e-4)


def test_a_resumed_run_is_the_run(tmp_path: Path) -> None:
    found, model = trained(sized("train.checkpoint_every=2"), tmp_path / "a")
    trained(sized("train.checkpoint_every=2", steps=6), tmp_path / "b")
    again, resumed = trained(sized("train.checkpoint_every=2"), tmp_path / "b", resume=True)
    assert weights_hash(model) == weights_hash(resumed)
    assert again.metrics["auxiliary_loss/size"] == found.metrics["auxiliary_loss/size"]
