"""Which token comes next: the rules against transformers' own, and the draws against their distribution."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gptlab.config import GenerationProbe
from gptlab.generating.rules import check_sampling
from gptlab.generating.sampling import Chooser, filtered
from tests.support.refusals import refused

RULES: list[dict[str, Any]] = [
    {"temperature": 0.7},
    {"temperature": 1.0, "top_k": 5},
    {"temperature": 1.0, "top_k": 500},
    {"temperature": 1.0, "top_p": 0.6},
    {"temperature": 1.0, "min_p": 0.2},
    {"temperature": 1.3, "repetition_penalty": 1.7},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.2},
]


def how(**keys: Any) -> GenerationProbe:
    return GenerationProbe(prompt="", **keys)


def some_logits(seed: int = 0, size: int = 50) -> Tensor:
    return 3 * torch.randn(size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("keys", RULES, ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_the_rules_are_those_of_transformers(keys: dict[str, Any], seed: int) -> None:
    from transformers import generation as theirs

    ids, logits = [3, 3, 17, 41], some_logits(seed)
    warpers = {
        "repetition_penalty": theirs.RepetitionPenaltyLogitsProcessor,
        "temperature": theirs.TemperatureLogitsWarper,
        "top_k": theirs.TopKLogitsWarper,
        "top_p": theirs.TopPLogitsWarper,
        "min_p": theirs.MinPLogitsWarper,
    }
    expected = logits[None].clone()
    for name, warper in warpers.items():
        if name in keys:
            expected = warper(keys[name])(torch.tensor([ids]), expected)
    torch.testing.assert_close(filtered(logits, ids, how(**keys)), expected[0])


def test_greedy_takes_the_largest_after_the_penalty() -> None:
    logits = torch.tensor([1.0, 3.0, 2.9, -1.0])
    assert Chooser(how(), 0, [0]).choose(logits, [1]) == 1
    assert Chooser(how(repetition_penalty=1.5), 0, [0]).choose(logits, [1]) == 2


def test_draws_have_the_probabilities_of_the_logits() -> None:
    logits, chooser = some_logits(1, 6), Chooser(how(temperature=2.0), 5, [1])
    drawn = torch.tensor([chooser.choose(logits, [1]) for _ in range(20_000)])
    found = torch.bincount(drawn, minlength=6) / len(drawn)
    torch.testing.assert_close(found, (logits / 2).softmax(-1), rtol=0, atol=0.015)  # 4 standard errors


def test_draws_follow_from_seed_prompt_and_repeat_alone() -> None:
    def drawn(seed: int, prompt: list[int], repeat: int = 0) -> list[int]:
        chooser = Chooser(how(temperature=3.0), seed, prompt, repeat)
        return [chooser.choose(some_logits(), prompt) for _ in range(12)]

    state = torch.get_rng_state()
    first = drawn(1, [2, 3])
    assert drawn(1, [2, 3]) == first
    assert first not in (drawn(2, [2, 3]), drawn(1, [2, 4]), drawn(1, [2, 3], 1))
    assert torch.equal(state, torch.get_rng_state())


def test_two_variants_that_are_nearly_equal_draw_nearly_the_same() -> None:
    """Paired: the share of equal tokens is far above that of two streams of their own."""
    one, other = some_logits(1), some_logits(1) + 0.05 * some_logits(2)
    choosers = [Chooser(how(temperature=2.0), 3, [1]) for _ in range(2)]
    apart = Chooser(how(temperature=2.0), 4, [1])
    paired = sum(choosers[0].choose(one, []) == choosers[1].choose(other, []) for _ in range(400))
    choosers[0] = Chooser(how(temperature=2.0), 3, [1])
    unpaired = sum(choosers[0].choose(one, []) == apart.choose(other, []) for _ in range(400))
    assert paired > 340 and unpaired < 120


def test_a_smaller_choice_moves_no_random_number() -> None:
    narrow, wide = Chooser(how(temperature=1.0, top_k=1), 0, [1]), Chooser(how(temperature=1.0), 0, [1])
    narrow.choose(some_logits(), [1])
    wide.choose(some_logits(), [1])
    narrow.how = wide.how
    assert [narrow.choose(some_logits(), []) for _ in range(9)] == [wide.choose(some_logits(), []) for _ in range(9)]


@pytest.mark.parametrize(
    ("keys", "code", "key"),
    [
        ({"max_new_tokens": 0}, "out-of-range", "max_new_tokens"),
        ({"temperature": -0.1}, "out-of-range", "temperature"),
        ({"temperature": float("nan")}, "not-finite", "temperature"),
        ({"temperature": 1.0, "top_k": 0}, "out-of-range", "top_k"),
        ({"temperature": 1.0, "top_p": 0.0}, "out-of-range", "top_p"),
        ({"temperature": 1.0, "top_p": 1.1}, "out-of-range", "top_p"),
        ({"temperature": 1.0, "min_p": -0.1}, "out-of-range", "min_p"),
        ({"repetition_penalty": 0.0}, "out-of-range", "repetition_penalty"),
        ({"top_k": 3}, "sampling-without-temperature", "top_k"),
        ({"top_p": 0.5}, "sampling-without-temperature", "top_p"),
        ({"min_p": 0.5}, "sampling-without-temperature", "min_p"),
        ({"stop": ["a", ""]}, "stop-empty", "stop"),
    ],
)
def test_what_cannot_be_is_refused(keys: dict[str, Any], code: str, key: str) -> None:
    with refused(code, key=f"my.{key}"):
        check_sampling(how(**keys), lambda name: f"my.{name}")
