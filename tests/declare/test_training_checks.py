"""A training that cannot be, or a key that it would ignore, is refused before anything starts."""

from __future__ import annotations

import pytest
import torch

from gptlab import ConfigError, compose
from gptlab.config import Config, TrainConfig, identity
from gptlab.metrics import METRICS
from gptlab.planning.plan import expand
from gptlab.training.budget import Budget
from gptlab.training.intervals import in_steps

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
    tokens = ["model=tiny", "train.budget=2000", "train.budget_unit=tokens"]  # 1,024 a step, and the second one ends it
    compose([*tokens, "train.warmup=2"])
    message = refusal("train.warmup=3", base=tokens)
    assert message == "train.warmup=3: longer than the run, 2 steps (train.budget=2000 tokens)."


def test_warm_up_longer_than_a_budget_in_flops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the plan can tell: a step's FLOPs follow from the model."""
    words = ["model=tiny", "probes=counting", "train.budget=1e6", "train.budget_unit=flops"]
    expand(words)
    with pytest.raises(
        ConfigError, match=r"train.warmup=5: longer than the run, 1 steps \(train.budget=1e\+06 flops\)"
    ):
        expand([*words, "train.warmup=5"])
    built: list[Config] = []
    of = Budget.of
    monkeypatch.setattr(Budget, "of", lambda config: built.append(config) or of(config))
    words[2:3] = ["train.budget=1.06e9"]  # 11 steps of the small one, and 5 of the baseline, which nobody asked for
    with pytest.raises(ConfigError, match=r"warmup=6: longer .*in the run .*seed=1.*ablation=none"):
        expand([*words, "train.warmup=6", "seed=1,2,3", "ablation=expansion_1"])
    assert len(built) == 2  # once for each variant, whatever the seeds
    built.clear()
    expand([*words, "seed=1,2,3", "ablation=expansion_1"])
    assert not built


@pytest.mark.parametrize("name", ["evaluation.every", "train.log_every", "train.checkpoint_every"])
def test_the_start_and_the_end_always_come(name: str) -> None:
    """So an interval that is longer than the run says: only these."""
    compose([*BASE, f"{name}=100"])


@pytest.mark.parametrize(
    "overrides",
    [
        ("train.budget=20,40", "train.probe_every=30", "probes=default"),
        ("train.budget=100,200,400", "evaluation.every=50", "train.average_last=4"),
        ("ablation=no_dropout,none", "probes=default", "probes.gradients.dropout=true"),
        ("model=toy_lesson", "model.vocab_size=32", "data=sentences,markov", "train=toy", "evaluation.tokens=2"),
        ("train.budget=5", "model.causal=true,false", "experiment.primary_metric=final_causal_loss"),
        ("train.budget=5", "data=python_docs,markov", "experiment.primary_metric=final_excess"),
    ],
)
def test_what_one_run_of_the_sweep_uses_is_used(overrides: tuple[str, ...]) -> None:
    base = [] if overrides[0].startswith("model=") else ["model=tiny"]
    extra = [] if any(text.startswith("probes=") for text in overrides) else ["probes=counting"]
    assert len(expand([*base, *extra, *overrides]).runs) > 1


def test_what_no_run_of_the_sweep_uses_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^train.probe_every=50: .*budget=20 steps. \(in the run .* nor would any"):
        expand(["model=tiny", "train.budget=20,40", "train.probe_every=50"])
    with pytest.raises(ConfigError, match=r"has no dropout\.$"):  # the same for all of them: no run is singled out
        expand(["model=tiny", "model.drop_rate=0", "seed=1,2", "probes.gradients.dropout=true"])
    with pytest.raises(ConfigError, match=r"^train.probe_every=50"):  # one of two values, which no run uses
        expand(["model=tiny", "train.budget=20,40", "train.probe_every=10,50"])


def test_presets_and_defaults_may_be_made_for_longer_runs() -> None:
    compose(["model=tiny", "train.budget=1"])
    compose(["model=tiny", "train=small", "train.budget=20", "train.warmup=2"])  # evaluates every 100
    assert "would never begin" in refusal("train=small", "train.budget=80", "train.warmup=80", base=["model=tiny"])
    base = ["model=tiny", "train=small", "train.budget=1"]  # the preset's warm-up is all of it
    compose(base)
    assert "would never begin" in refusal("train.schedule=linear", base=base)


def test_intervals_may_be_shares_of_the_run() -> None:
    """Settled into whole steps before the id: a preset at its own budget is what it was when it said the steps."""
    own = compose(["model=tiny", "train=small"])
    assert (own.train.warmup, own.train.log_every, own.evaluation.every) == (100, 10, 100)
    assert all(isinstance(value, int) for value in (own.train.warmup, own.train.log_every, own.evaluation.every))
    short = compose(["model=tiny", "train=small", "train.budget=60"])
    assert (short.train.warmup, short.train.log_every, short.evaluation.every) == (6, 1, 6)
    said = ["train.warmup=6", "train.log_every=1", "evaluation.every=6"]
    assert identity(short) == identity(compose(["model=tiny", "train=small", "train.budget=60", *said]))
    tokens = compose(["model=tiny", "train.budget=102400", "train.budget_unit=tokens", "evaluation.every=0.05"])
    assert tokens.evaluation.every == 5  # of 100 steps
    flops = compose(["model=tiny", "train.budget=1.06e9", "train.budget_unit=flops", "train.warmup=0.5"])
    budget = Budget.of(flops)
    assert in_steps(flops.train, budget).warmup == round(budget.steps / 2) > 1  # type: ignore[operator]
    one = compose([*BASE, "train.warmup=1", "evaluation.every=1"])
    assert (one.train.warmup, one.evaluation.every) == (1, 1)  # one step, not all of the run
    assert refusal("train.warmup=2.5") == "train.warmup=2.5: must be whole steps, or below 1 a share of the run."
    timed = compose([*BASE, "train.budget_unit=seconds", "train.warmup=0.1", "evaluation.every=0.1"])
    assert (timed.train.warmup, timed.evaluation.every) == (0.1, 0.1)  # of the time: steps are not known


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("train.evaluate_every=50", "evaluation.every=50"),
        ("train.evaluate_every=100", "evaluation.every=100"),  # the default: still nothing that would be read
        ("train.evaluation_batches=4", "evaluation.tokens=4096"),  # 4 batches of 16 rows of 64
    ],
)
def test_keys_that_moved_say_where_they_went(given: str, line: str) -> None:
    assert refusal(given).endswith(f"Write {line}.")
    compose([*BASE, line])
    assert compose(BASE).train.evaluate_every == 100  # accepted where it was never touched: configs of older runs


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("evaluation.context=65", "longer than model.context_length=64"),
        ("evaluation.tokens=0", "must be 1 or more"),
        ("evaluation.every=0", "must be above 0"),
        ("evaluation.batches=3", "'batches' does not exist"),
    ],
)
def test_evaluations_that_cannot_be(given: str, words: str) -> None:
    assert words in refusal(given)
    assert "would be ignored" in refusal("evaluation.final=false", "evaluation.final_tokens=5")


def test_the_mean_of_more_evaluations_than_there_are() -> None:
    base = [*BASE, "evaluation.every=4"]  # at 4, 8 and the end
    compose([*base, "train.average_last=3"])
    assert "the run has 3 evaluations after its start" in refusal("train.average_last=4", base=base)


def test_a_schedule_that_never_begins() -> None:
    message = refusal("train.schedule=cosine", "train.warmup=10")
    assert message.endswith("is all of the run, train.budget=10 steps, so train.schedule=cosine would never begin.")
    message = refusal("train.schedule=wsd", "train.warmup=5", "train.decay_share=0.6")
    assert "the last 6 of 10 steps begin within the warm-up" in message
    compose([*BASE, "train.schedule=wsd", "train.warmup=9"])  # the default share is cut to what is left


def test_a_language_of_few_strings_is_scored_as_a_whole() -> None:
    base = ["model=toy_lesson", "data=sentences", "train=toy"]
    assert "takes all rows of data.source=sentences" in refusal("evaluation.tokens=2", base=base)
    compose(["model=tiny", "data=markov", "train.budget=5", "evaluation.tokens=2"])


@pytest.mark.parametrize(
    ("metric", "words", "why"),
    [
        ("final_loss", (), "train.budget is null: nothing is trained"),
        ("final_excess", (), "train.budget is null: nothing is trained"),
        ("grad_norm", ("probes.gradients=null",), "probes.gradients is left out"),
        ("loss", ("probes.gradients=null",), "probes.gradients is left out"),
        ("dead_fraction", (), "it is measured along the way, by layer or by step"),
        ("logit_std", ("probes.activations=null",), "probes.activations is left out"),
        ("causal_loss", ("train.budget=5",), "it is measured along the way"),
        ("final_causal_loss", ("train.budget=5",), "every attention of the model is causal"),
        ("final_excess", ("train.budget=5",), "nobody knows the entropy of data.source=python_docs"),
        ("loss/foo", (), "only parameters are told apart by parts"),
    ],
)
def test_a_primary_metric_that_no_run_would_have(metric: str, words: tuple[str, ...], why: str) -> None:
    message = refusal(f"experiment.primary_metric={metric}", *words, base=["model=tiny", "probes=default"])
    assert message.startswith(f"experiment.primary_metric={metric}: no run would have it, because {why}")


def test_a_primary_metric_that_runs_have() -> None:
    """Each metric that says where it comes from is in the result of a run that has all of it."""
    words = ["model=toy_lesson", "data=sentences", "probes=default", "train.budget=2", "model.causal=false"]
    for name, declared in METRICS.items():
        if declared.source:
            compose([*words, f"experiment.primary_metric={name}"])
    compose([*words, "experiment.primary_metric=parameters/attention"])
    compose(["model=tiny", "probes=counting"])  # the default one, `loss`, was asked for by nobody


def test_dropout_of_a_model_that_has_none() -> None:
    words = "probes.gradients.dropout: would be ignored, because this model has no dropout."
    assert refusal("probes.gradients.dropout=true", "model.drop_rate=0", base=["model=tiny"]) == words
    assert refusal("probes.gradients.dropout=true", base=["model=deep_mlp"]) == words
    compose(["model=tiny", "probes.gradients.dropout=true", "model.drop_rate=0", "model.drop_feed_forward=0.1"])


def test_seconds_have_no_schedule() -> None:
    assert "nobody knows how many steps" in refusal("train.budget_unit=seconds", "train.schedule=cosine")
    assert "end before its peak rate" in refusal("train.budget_unit=seconds", "train.warmup=1000000")


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


@pytest.mark.parametrize(
    "override",
    [
        "train.learning_rate=1e-2",
        "train.checkpoint_every=5",
        "evaluation.every=5",
        "tracker=tensorboard",
        "data.validation_fraction=0.2",
    ],
)
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
    monkeypatch.setattr("gptlab.declare.machine_checks.find_spec", lambda name: None)
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
