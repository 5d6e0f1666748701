"""A training that cannot be, or a key that it would ignore, is refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gptlab import compose
from gptlab.config import Config, TrainConfig
from gptlab.errors import GptlabError
from gptlab.identity import identity
from gptlab.metrics import METRICS
from gptlab.planning.plan import expand
from gptlab.training.budget import Budget
from gptlab.training.intervals import in_steps
from tests.support.refusals import check_refusal, refused

BASE = ["model=tiny", "train.budget=10"]


def refusal(*overrides: str, base: list[str] = BASE) -> GptlabError:
    with pytest.raises(GptlabError) as caught:
        compose([*base, *overrides])
    return caught.value


@pytest.mark.parametrize(
    ("override", "code", "facts"),
    [
        ("train.budget=0", "out-of-range", {"key": "train.budget", "value": 0.0, "above": 0.0}),
        ("train.budget=-5", "out-of-range", {"key": "train.budget", "value": -5.0, "above": 0.0}),
        ("train.budget=nan", "not-finite", {"key": "train.budget"}),
        ("train.budget=2.5", "budget-not-whole", {"key": "train.budget", "value": 2.5}),
    ],
)
def test_budgets(override: str, code: str, facts: dict[str, Any]) -> None:
    check_refusal(refusal(override, base=["model=tiny"]), code, **facts)


@pytest.mark.parametrize(
    ("override", "code", "facts"),
    [
        ("train.learning_rate=-1e-3", "out-of-range", {"key": "train.learning_rate", "value": -0.001, "above": 0.0}),
        ("train.learning_rate=0", "out-of-range", {"key": "train.learning_rate", "value": 0.0, "above": 0.0}),
        ("train.learning_rate=nan", "not-finite", {"key": "train.learning_rate"}),
        ("train.learning_rate=inf", "not-finite", {"key": "train.learning_rate"}),
        ("train.warmup=11", "warmup-longer-than-run", {"key": "train.warmup", "value": 11}),
        ("train.warmup=-1", "out-of-range", {"key": "train.warmup", "value": -1.0, "low": 0}),
        ("train.context=65", "train-context", {"key": "train.context", "value": 65, "context_length": 64}),
        ("train.accumulate=3", "accumulate-divides", {"key": "train.accumulate", "value": 3, "batch_size": 16}),
        ("train.beta2=1.0", "not-below-one", {"key": "train.beta2", "value": 1.0}),
        ("train.clip=0", "out-of-range", {"key": "train.clip", "value": 0.0, "above": 0.0}),
        ("train.optimizer=adam", "unknown-name", {"key": "train.optimizer", "value": "adam", "suggestion": "adamw"}),
        ("train.schedule=cosin", "unknown-name", {"key": "train.schedule", "value": "cosin", "suggestion": "cosine"}),
        ("train.precision=fp16", "unknown-name", {"key": "train.precision", "value": "fp16", "suggestion": "bf16"}),
        ("train.budget_unit=hours", "unknown-name", {"key": "train.budget_unit", "value": "hours"}),
        ("train.device=gpu", "device-unknown", {"key": "train.device", "value": "gpu"}),
        ("train.device=mps", "device-not-supported", {"key": "train.device", "value": "mps"}),
        (
            "train.learning_rat=1",
            "unknown-name",
            {"key": "train.learning_rat=1", "value": "learning_rat", "suggestion": "learning_rate"},
        ),
        ("tracker=wandb", "unknown-name", {"key": "tracker", "value": "wandb"}),
    ],
)
def test_values_that_cannot_be(override: str, code: str, facts: dict[str, Any]) -> None:
    check_refusal(refusal(override), code, **facts)


def test_warm_up_longer_than_a_budget_in_tokens() -> None:
    tokens = ["model=tiny", "train.budget=2000", "train.budget_unit=tokens"]  # 1,024 a step, and the second one ends it
    compose([*tokens, "train.warmup=2"])
    check_refusal(
        refusal("train.warmup=3", base=tokens), "warmup-longer-than-run", key="train.warmup", value=3, steps=2
    )


def test_warm_up_longer_than_a_budget_in_flops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the plan can tell: a step's FLOPs follow from the model."""
    words = ["model=tiny", "probes=counting", "train.budget=1e6", "train.budget_unit=flops"]
    expand(words)
    with refused("warmup-longer-than-run", key="train.warmup", value=5, steps=1):
        expand([*words, "train.warmup=5"])
    built: list[Config] = []
    of = Budget.of
    monkeypatch.setattr(Budget, "of", lambda config: built.append(config) or of(config))
    words[2:3] = ["train.budget=1.06e9"]  # 11 steps of the small one, and 5 of the baseline, which nobody asked for
    with refused("warmup-longer-than-run", key="train.warmup", value=6):
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
    with refused("idle-value", key="train.probe_every") as caught:
        expand(["model=tiny", "train.budget=20,40", "train.probe_every=50"])
    assert "train.probe_every=50" in caught.value.facts["run"]
    with refused("idle-value", key="probes.gradients.dropout", run=None):  # the same for all: no run is singled out
        expand(["model=tiny", "model.drop_rate=0", "seed=1,2", "probes.gradients.dropout=true"])
    with refused("idle-value", key="train.probe_every"):  # one of two values, which no run uses
        expand(["model=tiny", "train.budget=20,40", "train.probe_every=10,50"])


def test_presets_and_defaults_may_be_made_for_longer_runs() -> None:
    compose(["model=tiny", "train.budget=1"])
    compose(["model=tiny", "train=small", "train.budget=20", "train.warmup=2"])  # evaluates every 100
    check_refusal(
        refusal("train=small", "train.budget=80", "train.warmup=80", base=["model=tiny"]),
        "warmup-is-all",
        key="train.warmup",
        value=80,
        schedule="cosine",
    )
    base = ["model=tiny", "train=small", "train.budget=1"]  # the preset's warm-up is all of it
    compose(base)
    check_refusal(
        refusal("train.schedule=linear", base=base), "warmup-is-all", key="train.warmup", value=1, schedule="linear"
    )


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
    check_refusal(refusal("train.warmup=2.5"), "interval-not-whole", key="train.warmup", value="2.5")
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
    key = given.partition("=")[0]
    code = "batches-moved" if key == "train.evaluation_batches" else "interval-moved"
    check_refusal(refusal(given), code, key=key, suggestion=line)
    compose([*BASE, line])
    assert compose(BASE).train.evaluate_every == 100  # accepted where it was never touched: configs of older runs


@pytest.mark.parametrize(
    ("given", "code", "facts"),
    [
        ("evaluation.context=65", "evaluation-context-too-long", {"key": "evaluation.context", "value": 65}),
        ("evaluation.tokens=0", "out-of-range", {"key": "evaluation.tokens", "value": 0, "low": 1}),
        ("evaluation.every=0", "out-of-range", {"key": "evaluation.every", "value": 0.0, "above": 0}),
        ("evaluation.batches=3", "unknown-name", {"key": "evaluation.batches=3", "value": "batches"}),
    ],
)
def test_evaluations_that_cannot_be(given: str, code: str, facts: dict[str, Any]) -> None:
    check_refusal(refusal(given), code, **facts)
    check_refusal(
        refusal("evaluation.final=false", "evaluation.final_tokens=5"),
        "train-key-ignored",
        key="evaluation.final_tokens",
    )


def test_the_mean_of_more_evaluations_than_there_are() -> None:
    base = [*BASE, "evaluation.every=4"]  # at 4, 8 and the end
    compose([*base, "train.average_last=3"])
    check_refusal(refusal("train.average_last=4", base=base), "idle-value", key="train.average_last")


def test_a_schedule_that_never_begins() -> None:
    all_of_it = {"key": "train.warmup", "value": 10, "schedule": "cosine"}
    check_refusal(refusal("train.schedule=cosine", "train.warmup=10"), "warmup-is-all", **all_of_it)
    late = {"key": "train.decay_share", "value": 0.6, "falling": 6, "steps": 10, "warmup": 5}
    error = refusal("train.schedule=wsd", "train.warmup=5", "train.decay_share=0.6")
    check_refusal(error, "decay-within-warmup", **late)
    compose([*BASE, "train.schedule=wsd", "train.warmup=9"])  # the default share is cut to what is left


def test_a_language_of_few_strings_is_scored_as_a_whole() -> None:
    base = ["model=toy_lesson", "data=sentences", "train=toy"]
    check_refusal(refusal("evaluation.tokens=2", base=base), "idle-value", key="evaluation.tokens")
    compose(["model=tiny", "data=markov", "train.budget=5", "evaluation.tokens=2"])


@pytest.mark.parametrize(
    ("metric", "words", "cause"),
    [
        ("final_loss", (), "untrained"),
        ("final_excess", (), "untrained"),
        ("grad_norm", ("probes.gradients=null",), "probe-left-out"),
        ("loss", ("probes.gradients=null",), "probe-left-out"),
        ("dead_fraction", (), "along-the-way"),
        ("logit_std", ("probes.activations=null",), "probe-left-out"),
        ("causal_loss", ("train.budget=5",), "along-the-way"),
        ("final_causal_loss", ("train.budget=5",), "all-causal"),
        ("final_excess", ("train.budget=5",), "entropy-unknown"),
        ("loss/foo", (), "parts"),
    ],
)
def test_a_primary_metric_that_no_run_would_have(metric: str, words: tuple[str, ...], cause: str) -> None:
    error = refusal(f"experiment.primary_metric={metric}", *words, base=["model=tiny", "probes=default"])
    check_refusal(error, "metric-of-no-run", key="experiment.primary_metric", value=metric, cause=cause)


def test_a_primary_metric_that_runs_have() -> None:
    """Each metric that says where it comes from is in the result of a run that has all of it."""
    words = ["model=toy_lesson", "data=sentences", "probes=default", "train.budget=2", "model.causal=false"]
    for name, declared in METRICS.items():
        if declared.source:
            compose([*words, f"experiment.primary_metric={name}"])
    compose([*words, "experiment.primary_metric=parameters/attention"])
    compose(["model=tiny", "probes=counting"])  # the default one, `loss`, was asked for by nobody


def test_dropout_of_a_model_that_has_none() -> None:
    key = "probes.gradients.dropout"
    check_refusal(refusal(f"{key}=true", "model.drop_rate=0", base=["model=tiny"]), "idle-value", key=key)
    check_refusal(refusal(f"{key}=true", base=["model=deep_mlp"]), "idle-value", key=key)
    compose(["model=tiny", "probes.gradients.dropout=true", "model.drop_rate=0", "model.drop_feed_forward=0.1"])


def test_seconds_have_no_schedule() -> None:
    check_refusal(
        refusal("train.budget_unit=seconds", "train.schedule=cosine"),
        "schedule-of-seconds",
        key="train.schedule",
        value="cosine",
    )
    check_refusal(
        refusal("train.budget_unit=seconds", "train.warmup=1000000"),
        "warmup-of-seconds",
        key="train.warmup",
        value="1e+06",
    )


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
    check_refusal(refusal(*overrides), "train-key-ignored", key=key)


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
    key = override.partition("=")[0]
    check_refusal(refusal(override, base=["model=tiny"]), "train-key-ignored", key=key)


def test_only_a_gpt_is_trained() -> None:
    check_refusal(
        refusal(base=["model=deep_mlp", "train.budget=1"]),
        "architecture-not-trained",
        key="train.budget",
        architecture="deep_mlp",
    )


def test_bf16_where_the_processor_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    check_refusal(
        refusal("train.precision=bf16", "train.device=cpu"), "bf16-not-on-cpu", key="train.precision", value="bf16"
    )


@pytest.mark.parametrize("words", [["train.precision=bf16"], ["train.device=cuda:7"]])
def test_what_a_cluster_has_is_not_asked_of_this_machine(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    assert refusal(*words)
    assert compose(["model=tiny", "data=sentences", "train.budget=4", "launcher=submitit", *words]).train.budget == 4


def test_muon_where_torch_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.optim, "Muon")
    check_refusal(refusal("train.optimizer=muon"), "muon-needs-torch", key="train.optimizer", value="muon")


def test_a_device_that_is_not_there() -> None:
    check_refusal(refusal("train.device=cuda:99"), "device-not-there", key="train.device", value="cuda:99")


def test_a_tracker_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptlab.declare.machine_checks.find_spec", lambda name: None)
    check_refusal(refusal("tracker=tensorboard"), "tracker-not-installed", key="tracker", value="tensorboard")


def test_without_a_budget_the_rest_does_not_count() -> None:
    """So that two ways to say `no training` are one run."""
    trained = compose(["model=tiny", "train=toy"])
    assert trained.train.context == 64 and trained.train.budget == 800
    assert compose(["model=tiny", "train=none"]).train == TrainConfig()
    assert identity(compose(["model=tiny", "train=none"])) == identity(compose(["model=tiny"])) != identity(trained)


def test_text_that_is_too_short_is_refused_before_the_run() -> None:
    error = refusal("data=string", "data.text='too short'", "probes=counting")
    check_refusal(error, "too-few-tokens-to-split", where="data.text")
