"""The numbers that a training brings back, from evaluations and rows that are made up, against plain arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gptlab.config import TrainConfig
from gptlab.data.batches import Batch
from gptlab.training.budget import Spent
from gptlab.training.evaluate import Evaluation, Rows, Scores, score, standard_error
from gptlab.training.measured import Found, of_held_out

VALUES, SHARES = [1.0, 2.0, 4.0, 7.0], [0.4, 0.3, 0.2, 0.1]


@dataclass
class Source:
    """As much of a source as the numbers ask for."""

    entropy: Any = None
    lengths: list[int] | None = None
    vocab_size: int = 6
    all_held_out: int | None = 100
    contexts: list[int] = field(default_factory=list)

    def unigram(self, context: int) -> float:
        self.contexts.append(context)
        return 3.5

    def bytes_per_token(self) -> list[int] | None:
        return self.lengths

    def held_out(self) -> int | None:
        return self.all_held_out


def found(*losses: float, **more: Any) -> Found:
    evaluations = [Evaluation(10 * n, loss, loss - 1, loss + 1, 0.01) for n, loss in enumerate(losses)]
    return Found(Spent(step=30, tokens=600, flops=9e9, seconds=4.0), evaluations, **more)


def numbers(made: Found, average_last: int = 1, source: Source | None = None) -> tuple[str, dict[str, Any]]:
    return made.outcome(TrainConfig(average_last=average_last), source or Source(), 8)  # type: ignore[arg-type]


@pytest.mark.parametrize(("last", "expected"), [(1, 2.5), (2, 2.25), (3, 7.5 / 3), (9, 7.5 / 3)])
def test_the_final_loss_is_the_mean_of_the_last_evaluations(last: int, expected: float) -> None:
    """That before training is never among them."""
    word, metrics = numbers(found(4.0, 3.0, 2.0, 2.5), last)
    assert word == "ok"
    assert metrics["final_loss"] == pytest.approx(expected)
    assert metrics["final_excess"] == pytest.approx(expected - 1)
    assert metrics["final_causal_loss"] == pytest.approx(expected + 1)
    assert (metrics["best_loss"], metrics["best_step"], metrics["initial_loss"]) == (2.0, 20, 4.0)


def test_what_was_spent_is_reported() -> None:
    source = Source()
    made = found(4.0, 3.0, auxiliary={"auxiliary_loss/balance": 0.25})
    _, metrics = numbers(made, source=source)
    assert (metrics["steps"], metrics["tokens"], metrics["training_flops"], metrics["train_seconds"]) == (
        30,
        600,
        9e9,
        4,
    )
    assert (metrics["tokens_per_second"], metrics["auxiliary_loss/balance"]) == (150, 0.25)
    assert (metrics["unigram_entropy"], source.contexts) == (3.5, [8])
    made.spent = Spent(step=1, tokens=2, flops=math.nan, seconds=0.0)
    assert {"training_flops", "tokens_per_second"}.isdisjoint(numbers(made)[1])


def test_what_broke_off_has_no_final_numbers() -> None:
    word, metrics = numbers(found(4.0, 3.0, finite=False))
    assert word == "diverged" and math.isnan(metrics["final_loss"]) and math.isnan(metrics["final_excess"])
    assert (metrics["initial_loss"], metrics["best_loss"]) == (4.0, 3.0)


def test_the_best_is_the_first_of_equals_and_finite() -> None:
    best = found(1.0, 3.0, math.nan, 2.0, 2.0).best()
    assert best is not None and (best.loss, best.step) == (2.0, 30)
    assert found(1.0).best() is None and found(1.0, math.nan).best() is None


def test_all_of_it_comes_back_from_a_checkpoint() -> None:
    made = found(4.0, 3.0, before=[4.0, 4.1], loss=2.9, broke_at=3, finite=False)
    assert Found.from_json(made.to_json()) == made


def test_the_standard_error_of_unequal_parts() -> None:
    """The delta method for a ratio of sums, with n / (n - 1): the mean is over tokens, the luck is in documents."""
    mean = np.average(VALUES, weights=SHARES)
    parts = np.array(SHARES) * (np.array(VALUES) - mean)
    assert standard_error(VALUES, SHARES) == pytest.approx(math.sqrt((parts**2).sum() * 4 / 3))
    assert standard_error([2.0, 2.0], SHARES[:2]) != standard_error([2.0, 3.0], SHARES[:2])


def test_the_error_of_a_rise_is_that_of_the_differences() -> None:
    scores = Scores(3.0, None, [1, 2, 3, 4], SHARES, VALUES)
    before = [1.5, 1.5, 5.0, 5.0]
    differences = [b - a for a, b in zip(before, VALUES, strict=True)]
    assert scores.error_over(before) == pytest.approx(standard_error(differences, SHARES))
    assert scores.error_over(VALUES) == 0


def batch(targets: list[list[int]], weights: list[list[float]], **more: Any) -> Batch:
    ids = torch.tensor(targets)
    return Batch(ids, ids, weights=torch.tensor(weights, dtype=torch.float64), **more)


def test_bits_per_byte_divide_by_the_bytes_of_the_scored_targets() -> None:
    rows = Rows([batch([[0, 1], [2, 5]], [[0.25, 0.25], [0.5, 0.0]])], 3, 0.5, "")
    source = Source(lengths=[1, 2, 4, 9, 9])  # one fewer than the vocabulary: that id is no text
    size = 0.25 * 1 + 0.25 * 2 + 0.5 * 4
    assert rows.bytes_per_target(source) == pytest.approx(size)  # type: ignore[arg-type]
    scores = Scores(2.0, None, [0, 1, 2, 3], SHARES, VALUES)
    metrics = of_held_out(rows, scores, source)  # type: ignore[arg-type]
    assert metrics["heldout_bits_per_byte"] == pytest.approx(2.0 / math.log(2) / size)
    assert metrics["heldout_loss"] == 2.0 and metrics["heldout_error"] == standard_error(VALUES, SHARES)
    assert "heldout_bits_per_byte" not in of_held_out(rows, scores, Source())  # type: ignore[arg-type]


@pytest.mark.parametrize(("held_out", "share", "luck"), [(100, 0.5, True), (None, None, True), (None, 1.0, False)])
def test_a_language_that_was_scored_whole_has_no_error(held_out: int | None, share: float | None, luck: bool) -> None:
    rows = Rows([], 3, share, "")
    metrics = of_held_out(rows, Scores(2.0, None, [0, 1, 2, 3], SHARES, VALUES), Source(all_held_out=held_out))  # type: ignore[arg-type]
    assert ("heldout_error" in metrics) == luck


class Spoken(nn.Module):
    """A model whose loss at a place is known: the logits are a table by the token that is read."""

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__()
        self.table = table
        self.out_head = nn.utils.skip_init(nn.Linear, table.shape[0], table.shape[1], bias=False)
        with torch.no_grad():
            self.out_head.weight.copy_(table.T)
        self.modes: list[bool] = []

    def features(self, ids: torch.Tensor) -> torch.Tensor:
        self.modes.append(self.training)
        return nn.functional.one_hot(ids, self.table.shape[0]).float()


@pytest.mark.parametrize("training", [True, False])
def test_a_score_is_the_weighted_mean_and_so_is_each_document(training: bool) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        table = torch.randn(6, 6)
    model = Spoken(table).train(training)
    nats = -table.double().log_softmax(-1)  # [read, target]
    documents = torch.tensor([[7, 7, 3], [3, 9, 9]])
    weights, surprisal = [[0.1, 0.2, 0.1], [0.3, 0.3, 0.0]], torch.full((2, 3), 0.5, dtype=torch.float64)
    one = batch([[0, 1, 2], [3, 4, 5]], weights, documents=documents, surprisal=surprisal)
    scores = score(model, [one, one])  # type: ignore[arg-type]
    at = torch.tensor([[float(nats[i, i]) for i in row] for row in ([0, 1, 2], [3, 4, 5])], dtype=torch.float64)
    own = torch.tensor(weights, dtype=torch.float64)
    assert scores.loss == pytest.approx(2 * float((own * at).sum()), rel=1e-6)
    assert scores.excess == pytest.approx(2 * float((own * (at - 0.5)).sum()), rel=1e-6)
    assert scores.documents == [3, 7, 9]
    for name, share, loss in zip(scores.documents, scores.shares, scores.losses, strict=True):
        there = documents == name
        assert share == pytest.approx(2 * float(own[there].sum()))
        assert loss == pytest.approx(float((own * at)[there].sum() / own[there].sum()), rel=1e-6)
    assert model.modes == [False, False] and model.training == training


def test_a_document_of_which_nothing_counts_is_none() -> None:
    model = Spoken(torch.zeros(6, 6))
    one = batch([[0, 1]], [[1.0, 0.0]], documents=torch.tensor([[1, 2]]))
    scores = score(model, [one])  # type: ignore[arg-type]
    assert (scores.documents, scores.shares, scores.excess) == ([1], [1.0], None)
    assert scores.loss == pytest.approx(math.log(6))
