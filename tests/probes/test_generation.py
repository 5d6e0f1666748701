"""Greedy continuation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from gptlab.config import Config, DataConfig, GenerationProbe, ModelConfig, ProbesConfig
from gptlab.declare.one_spelling import settle
from gptlab.model import build
from gptlab.probes import Subject
from gptlab.probes.generation import greedy, measure
from tests.support.book import book_gpt

SMALL = ModelConfig(vocab_size=61, context_length=12, emb_dim=24, n_heads=3, n_layers=3)
SIZES = (61, 12, 24, 3, 3)
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]


def config_of(prompt: str, new: int = 10, **changes: object) -> Config:
    return settle(
        Config(
            model=replace(SMALL, **changes),
            data=DataConfig(source="random_tokens"),
            probes=ProbesConfig(generation=GenerationProbe(prompt=prompt, max_new_tokens=new)),
        )
    )


class Scripted(nn.Module):
    """Gives the logits of a script, one row for each call, and keeps what it was shown."""

    def __init__(self, *rows: list[float]) -> None:
        super().__init__()
        self.rows = list(rows)
        self.seen: list[list[int]] = []

    def forward(self, ids: Tensor) -> Tensor:
        self.seen.append(ids[0].tolist())
        row = torch.tensor(self.rows[len(self.seen) - 1])
        return torch.cat([torch.zeros(1, ids.shape[1] - 1, len(row)), row.view(1, 1, -1)], dim=1)


@torch.no_grad()
def test_against_a_plain_loop_on_the_books_model() -> None:
    book, ids = book_gpt(123, *SIZES), list(PROMPT)
    margins = []
    for _ in range(6):  # passes the context of 12
        logits = book(torch.tensor([ids[-12:]]))[0, -1]
        first, second = logits.sort(descending=True).values[:2]
        margins.append((first - second).item())
        ids.append(int(torch.softmax(logits, -1).argmax()))  # softmax changes no order
    found = greedy(build(Config(model=SMALL)), PROMPT, 6, 12)
    assert found.ids == ids[len(PROMPT) :]
    assert found.margins == pytest.approx(margins, abs=1e-5)


def test_only_the_last_context_length_tokens_count() -> None:
    model = build(Config(model=SMALL))
    whole = greedy(model, [7, 7, 7, *PROMPT], 5, 4)
    assert whole == greedy(model, PROMPT[-4:], 5, 4)
    assert whole.ids != greedy(model, PROMPT, 5, 12).ids  # so the crop is no matter of chance here


def test_the_model_is_shown_what_it_said() -> None:
    model = Scripted([0.0, 5.0, 1.0], [2.0, 0.0, 9.0], [1.0, 0.5, 0.0])
    found = greedy(model, [2, 2], 3, 3)
    assert found.ids == [1, 2, 0]
    assert found.margins == [4.0, 7.0, 0.5]
    assert model.seen == [[2, 2], [2, 2, 1], [2, 1, 2]]


def test_equal_logits_take_the_first_id_with_no_margin() -> None:
    found = greedy(Scripted([1.0, 3.0, 3.0]), [0], 1, 4)
    assert (found.ids, found.margins) == ([1], [0.0])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_it_stops_where_the_logits_are_not_finite(bad: float) -> None:
    found = greedy(Scripted([0.0, 5.0], [0.0, bad]), [0], 5, 4)
    assert (found.ids, found.margins) == ([1], [5.0])


def test_a_stop_is_told() -> None:
    subject = Subject(config_of("3 1 4"))
    with torch.no_grad():
        subject.model.out_head.weight[5] = float("nan")
    found = measure(subject)
    assert found.documents["generation"]["token_ids"] == []
    assert found.documents["generation"]["new_text"] == ""
    assert found.warnings == ["generation stopped after 0 tokens: the logits are not finite"]


def test_a_vocabulary_of_one() -> None:
    found = measure(Subject(config_of("0 0", vocab_size=1, new=3))).documents["generation"]
    assert found["token_ids"] == [0, 0, 0]
    assert found["margins"] == [0.0, 0.0, 0.0]


def test_the_document_is_whole() -> None:
    found = measure(Subject(config_of("3 1 4 1 5 9 2 6 5 3", new=4)))
    document = found.documents["generation"]
    expected = greedy(build(Config(model=SMALL)), PROMPT, 4, 12)
    assert document["prompt"] == "3 1 4 1 5 9 2 6 5 3"
    assert document["prompt_ids"] == PROMPT
    assert document["token_ids"] == expected.ids
    assert document["margins"] == pytest.approx(expected.margins, abs=1e-6)  # each token once: other shapes of sums
    assert document["tokens"] == [str(token) for token in expected.ids]
    assert document["new_text"].split() == document["tokens"]
    assert document["text"].split() == [str(token) for token in PROMPT + expected.ids]
    assert found.warnings == []


def test_draws_are_paired_over_variants_and_follow_from_the_seed() -> None:
    def said(seed: int = 1, **changes: object) -> list[int]:
        config = config_of("3 1 4", new=8, **changes)
        probe = GenerationProbe("3 1 4", 8, temperature=1.0)
        config = replace(config, seed=seed, probes=ProbesConfig(generation=probe))
        found: list[int] = measure(Subject(config)).documents["generation"]["token_ids"]
        return found

    assert said() == said()
    assert said() != said(seed=2)
    near = said(norm_placement="post")  # another model, whose untrained logits are nearly flat as well
    assert sum(a == b for a, b in zip(said(), near, strict=True)) >= 4


def test_it_ends_at_a_stop() -> None:
    config = config_of("3 1 4", new=8)
    whole = measure(Subject(config)).documents["generation"]["tokens"]
    probe = GenerationProbe("3 1 4", 8, stop=[f" {whole[2]}"])
    found = measure(Subject(replace(config, probes=ProbesConfig(generation=probe)))).documents["generation"]
    assert found["tokens"] == whole[: whole.index(whole[2]) + 1]


def test_nothing_is_left_behind() -> None:
    subject = Subject(config_of("1 2"))
    state = torch.get_rng_state()
    measure(subject)
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in subject.model.parameters())
    assert torch.is_grad_enabled()


@pytest.mark.slow
def test_the_untrained_124m_says_what_the_book_prints() -> None:
    probes = ProbesConfig(generation=GenerationProbe(prompt="Hello, I am", max_new_tokens=10))
    document = measure(Subject(settle(Config(probes=probes)))).documents["generation"]
    assert document["prompt_ids"] == [15496, 11, 314, 716]
    assert document["token_ids"] == [27018, 24086, 47843, 30961, 42348, 7267, 49706, 43231, 47062, 34657]
    assert document["text"] == ("Hello, I am Featureiman Byeswickattribute argue logger Normandy Compton analogous")
    assert document["tokens"][:5] == [" Feature", "iman", " Bye", "swick", "attribute"]
    assert min(document["margins"]) == pytest.approx(0.0086, abs=5e-4)
    assert min(document["margins"][:6]) == pytest.approx(0.0197, abs=5e-4)
