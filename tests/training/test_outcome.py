"""The words for an outcome, and the loss before training against its closed form."""

from __future__ import annotations

import math

import pytest

from gptlab import compose
from gptlab.model import GPT
from gptlab.probes import Subject
from gptlab.training.evaluate import score
from gptlab.training.outcome import classify, expected_initial_loss

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("word", "final", "excess", "unigram"),
    [
        ("ok", 0.5, 0.02, 2.3),
        ("ok", 0.475, -0.005, 2.3),  # within what validation rows vary by
        ("ok", 2.4, None, None),  # text: nothing is known
        ("diverged", NAN, NAN, 2.3),
        ("diverged", INF, None, None),
        ("diverged", 2.6, 2.1, 2.3),  # above the loss before training, 2.5
        ("leaked", 0.05, -0.43, 2.3),
        ("collapsed", 2.29, 1.8, 2.3),
        ("collapsed", 2.32, 1.83, 2.3),
        ("collapsed", 2.3, None, 2.3),
        ("ok", 2.27, 1.77, 2.3),  # learned more than frequencies, if only a little
        ("ok", 2.3, 0.001, 2.3),  # random tokens: there is nothing but frequencies to learn
    ],
)
def test_words(word: str, final: float, excess: float | None, unigram: float | None) -> None:
    assert classify(final, 2.5, excess=excess, unigram=unigram) == word


@pytest.mark.parametrize(
    ("word", "final", "error"),
    [
        ("did not learn", 2.5 + 7e-9, None),  # what sums are rounded by
        ("did not learn", 2.51, 0.01),  # within two standard errors
        ("diverged", 2.53, 0.01),
        ("diverged", 2.5001, None),
        ("did not learn", 2.49, 0.01),
        ("ok", 2.47, 0.01),
    ],
)
def test_a_rise_has_a_margin(word: str, final: float, error: float | None) -> None:
    assert classify(final, 2.5, rise_error=error) == word


def test_what_has_nothing_to_learn_is_not_said_to_have_learned_nothing() -> None:
    assert classify(2.5, 2.5, excess=0.001, unigram=2.499) == "ok"


def initial(*overrides: str) -> tuple[float, float | None]:
    """(measured, expected)"""
    subject = Subject(
        compose(["model=tiny", "data=random_tokens", "model.vocab_size=2000", "probes=counting", *overrides])
    )
    model = subject.model
    assert isinstance(model, GPT)
    batches = subject.source.validation_batches(2048, 64)  # type: ignore[union-attr]
    return score(model, batches).loss, expected_initial_loss(model, subject.config.model)


@pytest.mark.parametrize(
    ("overrides", "variance"),
    [
        ((), 1 / 3),  # U(+-1/sqrt(d)) has a variance of 1/(3 d)
        (("ablation=post_ln",), 1 / 3),
        (("ablation=rmsnorm",), 1 / 3),
        (("ablation=gpt2_init",), 32 * 0.02**2),
    ],
)
def test_the_initial_loss_has_its_closed_form(overrides: tuple[str, ...], variance: float) -> None:
    measured, expected = initial(*overrides)
    assert expected == pytest.approx(math.log(2000) + variance / 2, abs=0.01)
    assert measured == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("ablation", ["no_norm", "identity_norm"])
def test_without_a_norm_at_the_end_there_is_no_closed_form(ablation: str) -> None:
    assert initial(f"ablation={ablation}")[1] is None
