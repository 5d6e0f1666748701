"""The loop: what it records, what it may not depend on, and that it learns."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from gptlab import compose
from gptlab.cli import main
from gptlab.data.batches import TokenSource
from gptlab.probes import Subject
from gptlab.show.figures.depth import depth_figure
from gptlab.store.study import load_study
from gptlab.training import progress
from tests.support.refusals import refused
from tests.support.training import numbers, toy, trained, weights_hash


def test_the_toy_learns_its_language(tmp_path: Path) -> None:
    found, _ = trained(toy("train.learning_rate=1e-2", "train.batch_size=16", steps=150), tmp_path)
    metrics = found.metrics
    assert found.outcome == "ok"
    assert metrics["final_loss"] < 1.0 < metrics["initial_loss"]
    assert metrics["final_excess"] == pytest.approx(metrics["final_loss"] - metrics["entropy_floor"], abs=1e-9)
    assert metrics["final_excess"] > 0


def test_what_a_run_records(tmp_path: Path) -> None:
    found, _ = trained(toy(steps=10), tmp_path)
    lines = numbers(tmp_path)
    assert [line["step"] for line in lines] == [0, 3, 4, 6, 8, 9, 10]
    assert [line["step"] for line in lines if "validation_loss" in line["metrics"]] == [0, 4, 8, 10]
    assert lines[0]["metrics"].keys() == {"validation_loss", "excess"}
    assert lines[1]["metrics"].keys() == {"train_loss", "grad_norm", "learning_rate"}
    assert lines[-1]["tokens"] == 10 * 4 * 6 == found.metrics["tokens"]
    assert lines[-1]["flops"] == found.metrics["training_flops"] > 0
    assert found.metrics["steps"] == 10
    assert found.metrics["initial_loss"] == lines[0]["metrics"]["validation_loss"]


def test_final_loss_is_the_mean_of_the_last_evaluations(tmp_path: Path) -> None:
    found, _ = trained(toy("train.average_last=2"), tmp_path)
    losses = [line["metrics"]["validation_loss"] for line in numbers(tmp_path) if "validation_loss" in line["metrics"]]
    assert found.metrics["final_loss"] == pytest.approx(sum(losses[-2:]) / 2, rel=1e-15)


def test_the_same_config_gives_the_same_bits(tmp_path: Path) -> None:
    (_, one), (_, two) = (trained(toy("model.drop_rate=0.2"), tmp_path / name) for name in "ab")
    assert weights_hash(one) == weights_hash(two)
    assert numbers(tmp_path / "a") == numbers(tmp_path / "b")


def test_neither_evaluation_nor_log_nor_checkpoints_change_the_weights(tmp_path: Path) -> None:
    _, plain = trained(toy("model.drop_rate=0.2"), tmp_path / "a")
    often = ["evaluation.every=1", "train.log_every=1", "train.checkpoint_every=2", "train.keep_checkpoints=0"]
    _, watched = trained(toy("model.drop_rate=0.2", *often), tmp_path / "b")
    assert weights_hash(plain) == weights_hash(watched)


def test_probes_on_the_way_change_no_bit(tmp_path: Path) -> None:
    overrides = ("model.drop_rate=0.2", "probes=default", "probes.gradients.dropout=true")
    _, plain = trained(toy(*overrides), tmp_path / "a")
    found, probed = trained(toy(*overrides, "train.probe_every=5"), tmp_path / "b")
    assert weights_hash(plain) == weights_hash(probed)
    assert numbers(tmp_path / "a") == numbers(tmp_path / "b")
    rows = found.tables["layers"]
    assert {row["step"] for row in rows} == {5, 10}
    assert {"grad_norm", "grad_mean_abs", "update_ratio"} <= {row["metric"] for row in rows}
    ratios = [row["value"] for row in rows if row["metric"] == "update_ratio" and row["part"] == "all"]
    assert len(ratios) == 2 * 2 and all(1e-5 < ratio < 1 for ratio in ratios)
    assert [sample["step"] for sample in found.documents["samples"]["samples"]] == [5, 10, 12]


def test_the_first_adam_step_moves_each_weight_by_the_rate(tmp_path: Path) -> None:
    config = toy("train.weight_decay=0", "train.eps=1e-20", "train.clip=null", "train.learning_rate=1e-3", steps=1)
    before = {name: weight.clone() for name, weight in Subject(config).model.named_parameters()}
    _, model = trained(config, tmp_path)
    moved = (model.get_parameter("trf_blocks.0.ff.layers.0.weight") - before["trf_blocks.0.ff.layers.0.weight"]).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, 1e-3), rtol=1e-3, atol=1e-6)


def test_parts_of_a_batch_add_up_to_the_whole(tmp_path: Path) -> None:
    sgd = ("train.optimizer=sgd", "train.learning_rate=0.1")
    (_, whole), (_, parts) = (trained(toy(*sgd, f"train.accumulate={n}", steps=2), tmp_path / str(n)) for n in (1, 4))
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_the_gradient_norm_is_that_before_clipping(tmp_path: Path) -> None:
    for value in ("null", "1e-3"):
        trained(toy(f"train.clip={value}", "train.log_every=1", steps=2), tmp_path / value)
    first = [numbers(tmp_path / value)[1]["metrics"]["grad_norm"] for value in ("null", "1e-3")]
    assert first[0] == first[1] > 1e-2


def test_seeds_and_variants_share_the_data_and_differ_in_the_weights(tmp_path: Path) -> None:
    seen: list[list[int]] = []
    for overrides in (("seed=1",), ("seed=1", "ablation=relu"), ("seed=2",)):
        subject = Subject(toy(*overrides))
        assert isinstance(subject.source, TokenSource)
        seen.append(subject.source.train_batch(3, 4, 6, subject.config.seed).inputs.flatten().tolist())
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this processor has no bf16")
def test_bf16_trains_close_to_fp32(tmp_path: Path) -> None:
    results = [trained(toy(f"train.precision={name}", steps=40), tmp_path / name) for name in ("fp32", "bf16")]
    losses = [found.metrics["final_loss"] for found, _ in results]
    assert losses[0] == pytest.approx(losses[1], rel=0.02) and losses[0] != losses[1]
    assert all(weight.dtype == torch.float32 for weight in results[1][1].parameters())


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon"])
def test_every_optimizer_learns(tmp_path: Path, optimizer: str) -> None:
    rate = "0.1" if optimizer == "sgd" else "1e-2"
    found, _ = trained(toy(f"train.optimizer={optimizer}", f"train.learning_rate={rate}", steps=60), tmp_path)
    assert found.metrics["final_loss"] < found.metrics["initial_loss"] - 0.2


def test_the_learning_rate_follows_the_schedule(tmp_path: Path) -> None:
    trained(toy("train.schedule=linear", "train.warmup=2", "train.learning_rate=1e-2", "train.log_every=1"), tmp_path)
    rates = [line["metrics"]["learning_rate"] for line in numbers(tmp_path)[1:]]
    assert rates[:3] == pytest.approx([0.005, 0.01, 0.01])
    assert rates[-1] == 0 and rates[2:] == sorted(rates[2:], reverse=True)


@pytest.mark.parametrize(("unit", "amount", "steps"), [("steps", 5, 5), ("tokens", 5 * 24 - 1, 5), ("tokens", 1, 1)])
def test_a_budget_ends_with_the_step_that_uses_it_up(tmp_path: Path, unit: str, amount: float, steps: int) -> None:
    found, _ = trained(toy(f"train.budget={amount}", f"train.budget_unit={unit}", steps=steps), tmp_path)
    assert found.metrics["steps"] == steps


def test_a_budget_in_flops_counts_forward_and_backward(tmp_path: Path) -> None:
    config = toy("train.budget=1e6", "train.budget_unit=flops")
    found, _ = trained(config, tmp_path)
    each = found.documents["training"]["flops_per_step"]
    assert found.metrics["training_flops"] == each * found.metrics["steps"] >= 1e6 > each * (found.metrics["steps"] - 1)


def test_a_budget_in_seconds_ends(tmp_path: Path) -> None:
    found, _ = trained(toy("train.budget=0.05", "train.budget_unit=seconds"), tmp_path)
    assert 0.05 <= found.metrics["train_seconds"] < 5 and found.metrics["steps"] >= 1


def test_a_budget_in_seconds_reaches_its_rate_and_is_evaluated_on_the_way(tmp_path: Path) -> None:
    words = ("train.budget=0.4", "train.budget_unit=seconds", "train.warmup=0.25", "train.log_every=1")
    trained(toy(*words, "evaluation.every=0.25", "train.learning_rate=1e-3"), tmp_path)
    lines = [line["metrics"] for line in numbers(tmp_path)]
    rates = [line["learning_rate"] for line in lines[1:]]
    assert rates[0] < 1e-3 and rates[-1] == 1e-3 and rates == sorted(rates)
    assert 3 <= len([line for line in lines if "validation_loss" in line]) <= 5  # start, three on the way, end


def test_torch_is_left_as_it_was(tmp_path: Path) -> None:
    before = torch.are_deterministic_algorithms_enabled(), torch.get_rng_state()
    _, model = trained(toy("train.deterministic=true", "model.drop_rate=0.1", steps=1), tmp_path)
    assert before[0] == torch.are_deterministic_algorithms_enabled()
    assert before[1].equal(torch.get_rng_state())
    assert not model.training


def test_a_model_without_a_mask_leaks_and_fails_when_used_causally(tmp_path: Path) -> None:
    found, model = trained(
        toy("ablation=no_mask", "train.learning_rate=2e-2", "train.batch_size=16", steps=250), tmp_path
    )
    assert found.outcome == "leaked"
    assert found.metrics["final_loss"] < found.metrics["entropy_floor"] < found.metrics["final_causal_loss"]
    assert all(not module.causal for module in model.modules() if hasattr(module, "causal"))


def test_divergence_ends_the_run(tmp_path: Path) -> None:
    config = toy(
        "train.optimizer=sgd", "train.learning_rate=1e18", "train.clip=null", "model.norm_placement=none", steps=50
    )
    found, _ = trained(config, tmp_path)
    assert found.outcome == "diverged" and found.metrics["steps"] < 50
    assert math.isnan(found.metrics["final_loss"]) and math.isnan(found.metrics["final_excess"])
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])["metrics"]["train_loss"] == "nan"


def test_a_listener_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptlab.training.loop.TICK_SECONDS", 0.0)
    ticks: list[progress.Tick] = []
    with progress.listening(ticks.append):
        trained(toy(), tmp_path / "a")
    trained(toy(), tmp_path / "b")  # nobody listens any more
    assert [tick.step for tick in ticks] == list(range(1, 13))
    assert ticks[-1].total == 12 and ticks[-1].seconds_left == 0
    line = "step 300/1000  loss 2.311  15,300 tokens/s  0:42 left"
    assert str(progress.Tick(300, 1000, 2.3114, 15300.2, 42.0)) == line


def test_flat_weights_are_the_same_training(tmp_path: Path) -> None:
    words = ("train.clip=null", "train.weight_decay=0.1")
    _, flat = trained(toy(*words, "train.kernels.optimizer=flat"), tmp_path / "a")
    _, plain = trained(toy(*words, "train.kernels=reference"), tmp_path / "b")
    assert weights_hash(flat) == weights_hash(plain)


def test_components_that_training_does_not_know_train_too(tmp_path: Path) -> None:
    config = compose(
        ["model=tiny", "model.attention=identity", "model.norm=identity", "train.budget=3", "probes=counting"]
    )
    found, model = trained(config, tmp_path)
    assert isinstance(model, nn.Module) and found.metrics["steps"] == 3


def test_memory_for_the_optimizer_is_asked_for_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptlab.probes.subject.physical_memory", lambda: int(3.5 * 4 * 1856))
    with refused("model-memory"):
        Subject(toy()).model  # noqa: B018
    assert Subject(toy("train.optimizer=sgd")).model


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a compiler")
def test_a_compiled_model_trains_the_same_within_rounding(tmp_path: Path) -> None:
    losses = []
    for wanted in ("true", "false"):
        found, _ = trained(toy(f"train.compile={wanted}", steps=8), tmp_path / wanted)
        losses.append(found.metrics["final_loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_the_trained_model_has_the_last_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["model=toy_lesson", "train=toy", "train.budget=60", "ablation=relu", f"output_dir={tmp_path}"]
    assert main([*words, "experiment.name=said"]) == 0
    study = load_study(tmp_path / "said")
    assert set(study.generations["step"]) == {60}
    assert "continuation after training" in " ".join(capsys.readouterr().out.split())
    page = (tmp_path / "said" / "report.html").read_text(encoding="utf-8")
    assert "greedily, after training" in page
    figure = depth_figure(study, "grad_norm")
    assert figure is not None and any(
        "by depth, before training" in " ".join(text.get_text().split()) for text in figure.texts
    )
    for folder in study.runs["folder"]:
        before = json.loads((tmp_path / "said" / folder / "generation.json").read_text())
        after = json.loads((tmp_path / "said" / folder / "samples.json").read_text())["samples"][-1]
        assert after["prompt"] == before["prompt"] and after["token_ids"] != before["token_ids"]
        rows = study.generations[study.generations["run"] == "r" + folder.rpartition("-")[2]]
        assert list(rows["token_id"]) == after["token_ids"]
