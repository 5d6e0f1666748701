"""What scores a model: rows from the data alone, whatever else is under study."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gptlab import compose
from gptlab.config import Config
from gptlab.model import GPT
from gptlab.probes import Subject
from gptlab.registry import register
from gptlab.training.evaluate import Rows, masked_twin, score, standard_error
from gptlab.training.kernels.loss import token_losses
from tests.support.training import numbers, toy, trained

TEXT = ["model=tiny", "data=python_docs", "train.budget=2", "probes=counting"]


def rows_of(config: Config) -> Rows:
    source = Subject(config).source
    return Rows.of(source, config.evaluation.tokens, config.evaluation.context)  # type: ignore[arg-type]


def initial_loss(*overrides: str) -> float:
    config = compose([*TEXT, "evaluation.tokens=2000", *overrides])
    model = Subject(config).model
    assert isinstance(model, GPT)
    return score(model, rows_of(config).batches).loss


def test_the_batch_and_the_seed_of_the_training_change_no_row() -> None:
    """With the same weights, batches of 2 and 16 gave 5.6436 and 5.6642 once."""
    assert initial_loss("train.batch_size=2") == initial_loss("train.batch_size=16")
    configs = [compose([*TEXT, *words]) for words in ([], ["seed=9"], ["train.batch_size=2"], ["ablation=relu"])]
    assert len({rows_of(config).hash for config in configs}) == 1


def test_other_contexts_score_the_same_targets_of_text_and_say_so_where_they_do_not() -> None:
    text = [rows_of(compose([*TEXT, f"train.context={c}"])) for c in (48, 64)]
    assert text[0].hash == text[1].hash and text[0].tokens == text[1].tokens == 8192
    language = ["model=tiny", "data=markov", "train.budget=2", "probes=counting"]
    three, six = (rows_of(compose([*language, f"train.context={c}"])) for c in (3, 6))
    assert three.hash != six.hash  # other places of a string, with another floor
    assert abs(three.tokens - six.tokens) < 6 and three.share is None
    same = [rows_of(compose([*language, f"train.context={c}", "evaluation.context=3"])).hash for c in (3, 6)]
    assert same[0] == same[1]


def test_a_run_records_on_what_it_was_scored(tmp_path: Path) -> None:
    found, model = trained(compose([*TEXT, "evaluation.tokens=2048", "evaluation.final_tokens=4096"]), tmp_path)
    scored = found.scored
    assert (scored["tokens"], scored["context"], scored["heldout"]["tokens"]) == (2048, 64, 4096)
    assert 0 < scored["share"] < scored["heldout"]["share"] < 1 and scored["rows"] != scored["heldout"]["rows"]
    assert isinstance(model, GPT)
    rows = Rows.of(Subject(compose(TEXT)).source, 4096, 64)  # type: ignore[arg-type]
    by_hand = [token_losses(model.features(b.inputs), model.out_head, b.targets)[b.weights > 0] for b in rows.batches]  # type: ignore[operator]
    assert found.metrics["heldout_loss"] == pytest.approx(float(torch.cat(by_hand).double().mean()), rel=1e-6)
    assert found.metrics["heldout_bits_per_byte"] == pytest.approx(found.metrics["heldout_loss"] / math.log(2))  # bytes
    table = found.tables["heldout"]
    assert sum(row["share"] for row in table) == pytest.approx(1)
    assert sum(row["share"] * row["loss"] for row in table) == pytest.approx(found.metrics["heldout_loss"])
    assert found.metrics["heldout_error"] == standard_error(
        [row["loss"] for row in table], [row["share"] for row in table]
    )


def test_a_language_that_is_scored_as_a_whole_leaves_nothing_to_luck(tmp_path: Path) -> None:
    found, _ = trained(toy(), tmp_path)
    assert found.scored["share"] == found.scored["heldout"]["share"] == 1
    assert "heldout_error" not in found.metrics and "heldout_bits_per_byte" not in found.metrics
    without, _ = trained(toy("evaluation.final=false"), tmp_path)
    assert "heldout_loss" not in without.metrics and "heldout" not in without.scored


def test_the_best_evaluation_stands_beside_the_last(tmp_path: Path) -> None:
    words = ("train.optimizer=sgd", "train.learning_rate=0.5", "train.clip=null", "evaluation.every=1")
    found, _ = trained(toy(*words, steps=30), tmp_path)
    losses = [line["metrics"]["validation_loss"] for line in numbers(tmp_path)][1:]
    assert found.metrics["best_loss"] == min(losses) < found.metrics["final_loss"] == losses[-1]
    assert found.metrics["best_step"] == 1 + losses.index(min(losses))


def test_the_standard_error_is_that_of_a_mean_of_equal_parts() -> None:
    values = [1.0, 2.0, 4.0, 7.0]
    expected = float(torch.tensor(values).std()) / 2
    assert standard_error(values, [0.25] * 4) == pytest.approx(expected)
    assert standard_error([1.0], [1.0]) is None and standard_error([1.0, math.nan], [0.5, 0.5]) is None


class _Fixed(nn.Module):
    """Attention whose mask is a buffer made in `__init__`, under a name of its own."""

    hidden: Tensor

    def __init__(self, emb_dim: int, causal: bool, context_length: int) -> None:
        super().__init__()
        self.project = nn.Linear(emb_dim, emb_dim)
        whole = torch.ones(context_length, context_length)
        self.register_buffer("hidden", (whole.tril() if causal else whole))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        weights = self.hidden[:length, :length]
        mixed: Tensor = weights / weights.sum(-1, keepdim=True) @ self.project(x)
        return mixed


@pytest.mark.usefixtures("scratch_registry")
def test_a_mask_is_made_where_the_component_makes_it(tmp_path: Path) -> None:
    """Flipping an attribute named `causal` left a mask that `__init__` makes as it was."""
    register("attention", "fixed_mask_of_a_test")(_Fixed)
    config = toy("model.attention=fixed_mask_of_a_test", "model.causal=false")
    model = Subject(config).model
    assert isinstance(model, GPT)
    twin = masked_twin(config, model)
    assert twin is not None
    assert all(a is b for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    ids = torch.arange(6)[None]
    changed = ids.clone()
    changed[0, -1] = (ids[0, -1] + 1) % 12
    with torch.no_grad():
        assert torch.equal(twin(ids)[0, :-1], twin(changed)[0, :-1])
        assert not torch.equal(model(ids)[0, :-1], model(changed)[0, :-1])
    found, _ = trained(config, tmp_path)
    assert found.metrics["final_causal_loss"] != found.metrics["final_loss"]
    causal = toy("model.attention=fixed_mask_of_a_test")
    assert masked_twin(causal, Subject(causal).model) is None  # type: ignore[arg-type]


def test_heldout_losses_are_a_file_of_the_run(tmp_path: Path) -> None:
    from gptlab.running.execute import execute

    result = execute(compose([*TEXT, "evaluation.final_tokens=4096"]), tmp_path / "run-s1-00000000")
    assert result["scored"]["rows"] and result["scored"]["heldout"]["share"]
    with (tmp_path / "run-s1-00000000" / "heldout.csv").open() as file:
        assert next(csv.reader(file)) == ["document", "share", "loss"]
