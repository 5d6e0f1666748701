"""Each entropy is computed twice: by the chain rule over an automaton, and from an enumeration that shares no code."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gptlab.config import DataConfig
from gptlab.data.batches import Batch, TokenSource, load
from gptlab.data.language import LanguageSource
from gptlab.data.markov import stationary, transitions
from gptlab.data.numbers import RandomTokens
from gptlab.data.sentences import GRAMMAR, WORDS
from gptlab.streams import generator
from tests.support.refusals import refused

Strings = dict[tuple[int, ...], float]  # row of ids -> probability


def source(kind: str, vocab_size: int = 64, **options: Any) -> LanguageSource:
    made = load(DataConfig(source=kind, options=options), vocab_size=vocab_size, seed=1)
    assert isinstance(made, LanguageSource)
    return made


def say(state: str, length: int) -> Strings:
    if length == 0:
        return {(): 1.0}
    return {
        (WORDS.index(word), *rest): share * p
        for word, (share, after) in GRAMMAR[state].items()
        for rest, p in say(after, length - 1).items()
    }


def say_markov(order: int, symbols: int, length: int) -> Strings:
    """From the solution of the linear equations that a stationary distribution satisfies."""
    table = transitions(order, symbols, 2.0, 0)
    count = symbols**order
    step = np.zeros((count, count))
    for context in range(count):
        for new in range(symbols):
            step[context, (context * symbols + new) % count] += table[context, new]
    equations = np.vstack([step.T - np.eye(count), np.ones(count)])
    share = np.linalg.lstsq(equations, np.array([*[0.0] * count, 1.0]), rcond=None)[0]
    assert np.abs(stationary(table) - share).max() < 1e-13
    strings: Strings = {}
    for context in range(count):
        digits = tuple(context // symbols**i % symbols for i in reversed(range(order)))
        strings[digits] = share[context]
    for _ in range(length - order):
        strings = {
            (*row, new): p * table[sum(d * symbols**i for i, d in enumerate(reversed(row[-order:]))), new]
            for row, p in strings.items()
            for new in range(symbols)
        }
    return strings


def say_brackets(kinds: int, depth: int, opening: float, length: int) -> Strings:
    strings: dict[tuple[int, ...], tuple[float, tuple[int, ...]]] = {(): (1.0, ())}
    for _ in range(length):
        longer = {}
        for row, (p, stack) in strings.items():
            up = 1.0 if not stack else 0.0 if len(stack) == depth else opening
            if up:
                longer |= {(*row, 2 * kind): (p * up / kinds, (*stack, kind)) for kind in range(kinds)}
            if stack and up < 1:
                longer[(*row, 2 * stack[-1] + 1)] = p * (1 - up), stack[:-1]
        strings = longer
    return {row: p for row, (p, _) in strings.items()}


def say_induction(symbols: int, length: int) -> Strings:
    copied = length // 3
    first = length - copied
    rows: list[tuple[int, ...]] = [()]
    for _ in range(first):
        rows = [(*row, new) for row in rows for new in range(symbols) if new not in row]
    starts = range(first - copied + 1)
    strings: Strings = Counter()
    for row in rows:
        for start in starts:
            strings[(*row, *row[start : start + copied])] += 1 / len(rows) / len(starts)
    return strings


CASES = {
    "sentences": (source("sentences"), 6, say("start", 7)),
    "sentences, a sentence and a half": (source("sentences"), 9, say("start", 10)),
    "markov 1": (source("markov", order=1, symbols=3), 5, say_markov(1, 3, 6)),
    "markov 2": (source("markov", order=2, symbols=3), 6, say_markov(2, 3, 7)),
    "markov 3": (source("markov", order=3, symbols=2), 8, say_markov(3, 2, 9)),
    "brackets": (source("brackets", kinds=2, depth=2), 7, say_brackets(2, 2, 0.4, 8)),
    "brackets, deep": (source("brackets", kinds=1, depth=5, opening=0.7), 11, say_brackets(1, 5, 0.7, 12)),
    "brackets, flat": (source("brackets", kinds=3, depth=1), 4, say_brackets(3, 1, 0.4, 5)),
    "induction": (source("induction", symbols=5), 5, say_induction(5, 6)),
    "induction, nothing to copy": (source("induction", symbols=4), 1, say_induction(4, 2)),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
Case = tuple[LanguageSource, int, Strings]


def entropy(shares: Counter[Any]) -> float:
    return -math.fsum(p * math.log(p) for p in shares.values())


def blocks(strings: Strings, length: int) -> float:
    """The entropy of the first `length` ids."""
    shares: Counter[tuple[int, ...]] = Counter()
    for row, p in strings.items():
        shares[row[:length]] += p
    return entropy(shares)


@each_case
def test_the_floor_of_every_position_by_the_chain_rule_and_by_enumeration(case: Case) -> None:
    found, context, strings = case
    assert math.fsum(strings.values()) == pytest.approx(1, abs=1e-12)
    expected = [blocks(strings, t + 2) - blocks(strings, t + 1) for t in range(context)]
    assert found.entropy.by_position(context) == pytest.approx(expected, abs=1e-12)
    assert found.entropy.mean(context) == pytest.approx(sum(expected) / context, abs=1e-12)


@each_case
def test_the_unigram_entropy_by_enumeration(case: Case) -> None:
    found, context, strings = case
    shares: Counter[int] = Counter()
    for row, p in strings.items():
        for token in row[1:]:
            shares[token] += p / context
    assert found.unigram(context) == pytest.approx(entropy(shares), abs=1e-12)


@each_case
def test_all_strings_with_their_probabilities(case: Case) -> None:
    found, context, strings = case
    listed = found.language.strings(context, 10_000)
    assert listed is not None and listed.probability is not None
    assert dict(zip(map(tuple, listed.ids.tolist()), listed.probability.tolist(), strict=True)) == pytest.approx(
        strings, abs=1e-12
    )
    floor = (listed.probability[:, None] * listed.surprisal).sum(axis=0)
    assert floor == pytest.approx(found.entropy.by_position(context), abs=1e-12)
    assert found.language.strings(context, len(strings) - 1) is None


@each_case
def test_a_sample_has_the_frequencies_and_the_surprisal_that_it_should(case: Case) -> None:
    found, context, strings = case
    count = 20_000
    sample = found.language.draw(count, context, generator(1, "test"))
    seen = Counter(map(tuple, sample.ids.tolist()))
    assert seen.keys() <= strings.keys()
    # Pearson's statistic has mean n and variance 2n about; five standard deviations is one in a million.
    chi2 = sum((seen[row] - count * p) ** 2 / (count * p) for row, p in strings.items())
    n = max(1, len(strings) - 1)
    rare = sum(1 / (count * p) for p in strings.values())  # what few expected counts add to the variance
    assert abs(chi2 - n) < 5 * math.sqrt(2 * n + rare)
    probability = np.array([strings[tuple(row)] for row in sample.ids.tolist()])
    first = np.array([sum(p for row, p in strings.items() if row[0] == token) for token in range(found.language.size)])
    assert sample.surprisal.sum(axis=1) == pytest.approx(
        np.log(first[sample.ids[:, 0]]) - np.log(probability), abs=1e-9
    )


@pytest.mark.parametrize("kind", ["markov", "brackets", "induction"])
def test_at_full_size_the_surprisal_of_a_sample_is_the_floor(kind: str) -> None:
    found, context = source(kind), 64
    surprisal = found.language.draw(4000, context, generator(2, "test")).surprisal
    error = surprisal.std(axis=0) / math.sqrt(4000)
    floor = np.array(found.entropy.by_position(context))
    assert (np.abs(surprisal.mean(axis=0) - floor) <= 5 * error + 1e-12).all()
    assert found.entropy.mean(context) < 0.75 * found.unigram(context) <= 0.75 * math.log(found.language.size)


def test_sentences_are_28_and_their_floor_is_the_documented_one() -> None:
    found = source("sentences", vocab_size=12)
    assert len(say("start", 7)) == 28
    assert found.entropy.by_position(6) == pytest.approx([0.6730, 1.0297, 0.6981, 0, 0.7062, 0], abs=5e-5)
    assert (found.entropy.mean(6), found.unigram(6)) == pytest.approx((0.51783, 2.23843), abs=5e-6)
    assert found.tokenizer.decode([0, 2, 3, 8, 1, 4]) == ". a girl feeds the dog"
    assert found.tokenizer.encode(". a girl") == [0, 2, 3]
    with refused("unknown-name", key="data.tokenizer=words", value="grl", suggestion="girl"):
        found.tokenizer.encode("a grl")


def test_a_markov_chain_reaches_its_rate_when_its_order_is_known() -> None:
    found = source("markov")
    table = transitions(2, 32, 2.0, 0)
    rate = float(-(stationary(table)[:, None] * table * np.log(table)).sum())
    floor = found.entropy.by_position(10)
    assert floor[1:] == pytest.approx([rate] * 9, abs=1e-12)
    assert floor[0] > rate + 1


@given(kinds=st.integers(1, 3), depth=st.integers(1, 4), opening=st.floats(0.05, 0.95), context=st.integers(1, 30))
@settings(deadline=None, max_examples=30, derandomize=True)
def test_the_floor_of_brackets_follows_from_depth_alone(kinds: int, depth: int, opening: float, context: int) -> None:
    free = [math.log(kinds)] + [
        -(1 - opening) * math.log(1 - opening) - opening * math.log(opening / kinds) for _ in range(depth - 1)
    ]
    at = [0.0, 1.0, *[0.0] * (depth - 1)]  # after the first id, which opens
    expected = []
    for _ in range(context):
        expected.append(sum(p * h for p, h in zip(at, [*free, 0.0], strict=True)))
        up = [at[0], *[p * opening for p in at[1:depth]]]
        down = [at[d] - (up[d] if d < depth else 0) for d in range(1, depth + 1)]
        at = [(up[d - 1] if d else 0) + (down[d] if d < depth else 0) for d in range(depth + 1)]
    found = source("brackets", kinds=kinds, depth=depth, opening=opening)
    assert found.entropy.by_position(context) == pytest.approx(expected, abs=1e-12)


def test_induction_rows_copy_from_a_place_that_changes() -> None:
    found = source("induction")
    batch = found.train_batch(0, 200, 64, seed=1)
    rows = torch.cat([batch.inputs[:, :1], batch.targets], dim=1)
    starts = []
    for row in rows.tolist():
        start = row.index(row[44])
        assert len(set(row[:44])) == 44
        assert row[44:] == row[start : start + 21]
        starts.append(start)
    assert set(starts) == set(range(24))
    with refused("induction-too-few-symbols", key="data.options.symbols", value=64, context=128, first=86):
        found.vet(128)


ALL = ["sentences", "markov", "induction", "brackets", "random_tokens"]


@pytest.mark.parametrize("kind", ALL)
def test_a_batch_follows_from_seed_and_step_alone(kind: str) -> None:
    one, two = (load(DataConfig(source=kind), 64, seed=s) for s in (1, 1))
    assert isinstance(one, TokenSource) and isinstance(two, TokenSource)
    state = torch.get_rng_state()
    later = one.train_batch(5, 4, 12, seed=1)
    for step in range(5):
        one.train_batch(step, 4, 12, seed=1)
    assert torch.equal(later.inputs, two.train_batch(5, 4, 12, seed=1).inputs)
    assert not torch.equal(later.inputs, one.train_batch(6, 4, 12, seed=1).inputs)
    assert not torch.equal(later.inputs, one.train_batch(5, 4, 12, seed=2).inputs)
    assert torch.equal(later.inputs[:, 1:], later.targets[:, :-1])
    assert (later.inputs.dtype, later.inputs.shape, later.weights) == (torch.int64, (4, 12), None)
    assert torch.equal(state, torch.get_rng_state())


def losses(batches: list[Batch]) -> tuple[float, int]:
    """What the true distribution loses, and the number of rows."""
    total = sum(float((b.weights * b.surprisal).sum()) for b in batches)  # type: ignore[operator]
    return total, sum(len(b.inputs) for b in batches)


@pytest.mark.parametrize("kind", ALL)
def test_validation_is_the_same_for_every_seed_and_its_weights_add_up(kind: str) -> None:
    one, two = (load(DataConfig(source=kind), 64, seed=s) for s in (1, 2))
    assert isinstance(one, TokenSource) and isinstance(two, TokenSource)
    batches, again = one.validation_batches(12 * 400, 12), two.validation_batches(12 * 400, 12)
    assert [len(batch.inputs) for batch in batches] == [341, 59]  # 4,096 tokens at once
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(batches, again, strict=True))
    assert sorted({int(n) for b in batches for n in b.documents.unique()}) == list(range(400))  # type: ignore[union-attr]
    assert sum(float(b.weights.sum()) for b in batches) == pytest.approx(1, abs=1e-12)  # type: ignore[union-attr]
    assert one.entropy is not None
    assert losses(batches)[0] == pytest.approx(one.entropy.mean(12), abs=0.1)


def test_few_strings_are_all_scored_so_that_the_loss_of_the_truth_is_the_floor() -> None:
    found = source("sentences")
    total, rows = losses(found.validation_batches(48, 6))
    assert (total, rows) == (pytest.approx(found.entropy.mean(6), abs=1e-12), 28)
    assert losses(found.validation_batches(64 * 18, 18))[1] == 64  # 21,952 strings of three sentences: a sample


def test_random_tokens_have_nothing_to_learn() -> None:
    found = load(DataConfig(source="random_tokens"), 12, seed=1)
    assert isinstance(found, RandomTokens)
    assert found.entropy.by_position(3) == [math.log(12)] * 3
    assert found.entropy.mean(3) == found.unigram(3) == math.log(12)


def test_the_hash_follows_the_declaration_and_not_the_seed() -> None:
    hashes = {source("markov").hash, source("markov", order=1).hash, source("markov", table_seed=1).hash}
    assert len(hashes) == 3
    assert load(DataConfig(source="markov"), 99, seed=7).hash in hashes
