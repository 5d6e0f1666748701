"""A training that cannot be, or a key that it would ignore, is refused before anything starts."""

from __future__ import annotations

import pytest
import torch

from gptlab import ConfigError, compose
from gptlab.config import TrainConfig, identity

BASE = ["model=tiny", "train.budget=10"]


def refusal(*overrides: str, base: list[str] = BASE) -> str:
    with pytest.raises(ConfigError) as caught:
        compose([*base, *overrides])
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.budget=0", "train.budget=0.0: must be above 0"),
        ("train.budget=-5", "must be above 0"),
        ("train.budget=nan", "must be a finite number"),
        ("train.budget=2.5", "steps are whole numbers"),
    ],
)
def test_budgets(override: str, words: str) -> None:
    assert words in refusal(override, base=["model=tiny"])


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.learning_rate=-1e-3", "train.learning_rate=-0.001: must be above 0"),
        ("train.learning_rate=0", "must be above 0"),
        ("train.learning_rate=nan", "must be a finite number"),
        ("train.learning_rate=inf", "must be a finite number"),
        ("train.warmup=11", "longer than the run, train.budget=10 steps"),
        ("train.warmup=-1", "must be 0 or more"),
        ("train.context=65", "longer than model.context_length=64"),
        ("train.accumulate=3", "train.batch_size=16 is not divisible by it"),
        ("train.beta2=1.0", "must be below 1"),
        ("train.clip=0", "must be above 0"),
        ("train.optimizer=adam", "Did you mean 'adamw'?"),
        ("train.schedule=cosin", "Did you mean 'cosine'?"),
        ("train.precision=fp16", "Allowed: bf16, fp32"),
        ("train.budget_unit=hours", "Allowed: flops, seconds, steps, tokens"),
        ("train.device=gpu", "is no device"),
        ("train.device=mps", "not supported"),
        ("train.learning_rat=1", "Did you mean 'learning_rate'?"),
        ("tracker=wandb", "Allowed: none, tensorboard"),
    ],
)
def test_values_that_cannot_be(override: str, words: str) -> None:
    assert words in refusal(override)


def test_warm_up_longer_than_a_budget_in_tokens() -> None:
    message = refusal("train.budget=2000", "train.budget_unit=tokens", "train.warmup=2", base=["model=tiny"])
    assert "2 steps are 2,048 tokens, longer than the run" in message


def test_seconds_have_no_schedule() -> None:
    assert "nobody knows how many steps" in refusal("train.budget_unit=seconds", "train.schedule=cosine")


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (("train.momentum=0.9",), "train.momentum"),
        (("train.optimizer=sgd", "train.beta1=0.8"), "train.beta1"),
        (("train.final_rate=0.1",), "train.final_rate"),
        (("train.schedule=cosine", "train.decay_share=0.1"), "train.decay_share"),
        (("train.weight_decay=0", "train.decay_embeddings=false"), "train.decay_embeddings"),
        (("probes=counting", "train.probe_every=5"), "train.probe_every"),
    ],
)
def test_nothing_configured_is_ignored(overrides: tuple[str, ...], key: str) -> None:
    assert refusal(*overrides).startswith(f"{key}: would be ignored, because ")


@pytest.mark.parametrize("override", ["train.learning_rate=1e-2", "train.checkpoint_every=5", "tracker=tensorboard"])
def test_without_a_budget_nothing_is_read(override: str) -> None:
    assert "train.budget is null" in refusal(override, base=["model=tiny"])


def test_only_a_gpt_is_trained() -> None:
    assert "only gpt" in refusal(base=["model=deep_mlp", "train.budget=1"])


def test_bf16_where_the_processor_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    assert "this processor does not have it" in refusal("train.precision=bf16", "train.device=cpu")


def test_muon_where_torch_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.optim, "Muon")
    assert "needs torch 2.9 or newer" in refusal("train.optimizer=muon")


def test_a_device_that_is_not_there() -> None:
    assert "this machine has" in refusal("train.device=cuda:99")


def test_a_tracker_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptlab.training_rules.find_spec", lambda name: None)
    assert "pip install 'gptlab[tensorboard]'" in refusal("tracker=tensorboard")


def test_without_a_budget_the_rest_does_not_count() -> None:
    """So that two ways to say `no training` are one run."""
    trained = compose(["model=tiny", "train=toy"])
    assert trained.train.context == 64 and trained.train.budget == 800
    assert compose(["model=tiny", "train=none"]).train == TrainConfig()
    assert identity(compose(["model=tiny", "train=none"])) == identity(compose(["model=tiny"])) != identity(trained)


def test_text_that_is_too_short_is_refused_before_the_run() -> None:
    words = refusal("data=string", "data.text='too short'", "probes=counting")
    assert "data.text" in words
