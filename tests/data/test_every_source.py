"""What holds of every kind of data that has tokens, whatever it is: shapes, shifts, streams and weights.

Sizes differ from each other everywhere (batch, context, vocabulary), so that nothing can stand for something else.
"""

from __future__ import annotations

import math

import pytest
import torch

from gptlab.config import DataConfig
from gptlab.data.batches import Batch, TokenSource, load, rows_at_once
from gptlab.data.kinds import kinds

VOCABULARY = 71
KINDS = {
    "string": DataConfig(source="string", text=" ".join(str(7 * n % 59) for n in range(400)), tokenizer="ids"),
    "random_tokens": DataConfig(source="random_tokens"),
    "sentences": DataConfig(source="sentences"),
    "markov": DataConfig(source="markov"),
    "induction": DataConfig(source="induction"),
    "brackets": DataConfig(source="brackets"),
}
LANGUAGES = ("sentences", "markov", "induction", "brackets")
CONTEXT = {"induction": 7, "brackets": 7}  # the length that their strings have by default, less one


def source_of(name: str, seed: int = 3) -> TokenSource:
    source = load(KINDS[name], VOCABULARY, seed)
    assert isinstance(source, TokenSource)
    return source


def context_of(name: str) -> int:
    return CONTEXT.get(name, 5)


def check_rows(batch: Batch, rows: int, context: int) -> None:
    assert batch.inputs.shape == batch.targets.shape == (rows, context)
    assert batch.inputs.dtype == batch.targets.dtype == torch.int64
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    assert int(batch.targets.min()) >= 0 and int(batch.targets.max()) < VOCABULARY


def test_no_kind_is_left_out() -> None:
    apart = {"python_docs", "file", "hf", "vectors"}  # text as `string` is, and rows without tokens
    assert set(KINDS) == set(kinds()) - apart


@pytest.mark.parametrize("name", KINDS)
def test_rows_are_of_the_asked_shape_and_targets_one_further(name: str) -> None:
    source, context = source_of(name), context_of(name)
    for batch in (source.batch(3, context), source.train_batch(2, 4, context, 1)):
        check_rows(batch, len(batch.inputs), context)
    assert len(source.batch(3, context).inputs) == 3 and len(source.train_batch(2, 4, context, 1).inputs) == 4


@pytest.mark.parametrize("name", KINDS)
def test_training_follows_seed_and_step_and_nothing_else(name: str) -> None:
    context = context_of(name)
    rows = source_of(name).train_batch(2, 6, context, 1).inputs
    assert torch.equal(rows, source_of(name, seed=9).train_batch(2, 6, context, 1).inputs)
    assert not torch.equal(rows, source_of(name).train_batch(3, 6, context, 1).inputs)
    assert not torch.equal(rows, source_of(name).train_batch(2, 6, context, 2).inputs)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        assert torch.equal(rows, source_of(name).train_batch(2, 6, context, 1).inputs)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("tokens", [35, 20_000])
def test_validation_weighs_each_target_once(name: str, tokens: int) -> None:
    source, context = source_of(name), context_of(name)
    batches = source.validation_batches(tokens, context)
    for batch in batches:
        check_rows(batch, len(batch.inputs), context)
        assert len(batch.inputs) <= rows_at_once(context) == 4096 // context
        assert batch.weights is not None and batch.documents is not None
        assert batch.weights.shape == batch.documents.shape == batch.inputs.shape
        assert batch.weights.dtype == torch.float64 and bool((batch.weights >= 0).all())
        assert (batch.surprisal is None) == (source.entropy is None)
        assert batch.surprisal is None or batch.surprisal.shape == batch.inputs.shape
    assert sum(float(b.weights.sum()) for b in batches if b.weights is not None) == pytest.approx(1)
    again = source_of(name, seed=9).validation_batches(tokens, context)
    assert all(torch.equal(a.targets, b.targets) for a, b in zip(batches, again, strict=True))
    scored = sum(int((b.weights > 0).sum()) for b in batches if b.weights is not None)
    if not source.scores_all(context):
        available = source.held_out()
        wanted = tokens if available is None else min(tokens, available)
        assert wanted - context < scored <= wanted


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_language_that_is_scored_whole_scores_its_floor(name: str) -> None:
    source, context = source_of(name), context_of(name)
    if not source.scores_all(context):
        return
    batches = source.validation_batches(10, context)
    pairs = [(b.weights, b.surprisal) for b in batches if b.weights is not None and b.surprisal is not None]
    assert source.entropy is not None
    assert sum(float((w * s).sum()) for w, s in pairs) == pytest.approx(source.entropy.mean(context), rel=1e-9)


def test_some_language_is_scored_whole() -> None:
    assert any(source_of(name).scores_all(context_of(name)) for name in LANGUAGES)


def test_the_floor_of_uniform_tokens_is_the_logarithm_of_the_vocabulary() -> None:
    source = source_of("random_tokens")
    assert source.entropy is not None
    assert source.unigram(5) == source.entropy.mean(5) == math.log(VOCABULARY)
    assert source.entropy.by_position(3) == [math.log(VOCABULARY)] * 3
    (batch,) = source.validation_batches(35, 5)
    assert batch.surprisal is not None and set(batch.surprisal.flatten().tolist()) == {math.log(VOCABULARY)}


def test_text_that_is_held_out_is_scored_once() -> None:
    source = source_of("string")
    numbers = [7 * n % 59 for n in range(400)]
    held_out = source.held_out()
    assert held_out == 400 // 10 - 1
    (batch,) = source.validation_batches(10_000, 13)
    assert batch.weights is not None
    scored = batch.targets[batch.weights > 0].tolist()
    assert sorted(scored) == sorted(numbers[-held_out:])


def test_how_text_is_split_where_nobody_says_it() -> None:
    """Of many documents whole ones are held out; of one text, its end."""
    texts = {name: kind.defaults for name, kind in kinds().items() if "split" in kind.defaults}
    assert {name: defaults["split"] for name, defaults in texts.items()} == {
        "python_docs": "document", "hf": "document", "file": "position", "string": "position",
    }  # fmt: skip
    assert {defaults["validation_fraction"] for defaults in texts.values()} == {0.1}
