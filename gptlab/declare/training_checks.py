"""What a training config may say, before anything is built."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from gptlab import kernels, registry
from gptlab.config import Config, ModelConfig, TrainConfig
from gptlab.declare.machine_checks import check_machine
from gptlab.declare.training_spelling import length_words, parts, run_length
from gptlab.errors import ConfigError, wrong_value

# Keys that only optimizers and schedules read, each those that name it in their signature.
_LEFT_TO_PARTS = frozenset({"beta1", "beta2", "eps", "momentum", "final_rate", "decay_share"})
# Keys that have gone to `evaluation`, which no key of the training moves.
MOVED = ("evaluate_every", "evaluation_batches")
_DEFAULTS = {f.name: f.default for f in dataclasses.fields(TrainConfig)}


def check_training(config: Config, changed: Collection[str] = ()) -> None:
    """ConfigError for a training that cannot be, or a key that it would ignore. `changed`: keys that the user set."""
    train = config.train
    if train.budget is None:
        ignored = {"train", "evaluation", "tracker", "data.split", "data.validation_fraction"}
        _refuse_ignored(changed, ignored, "train.budget is null, so nothing is trained")
        return
    if config.model.architecture != "gpt":
        raise ConfigError(
            f"train.budget: architecture={config.model.architecture} cannot be trained, only gpt can.",
            code="architecture-not-trained",
            key="train.budget",
            architecture=config.model.architecture,
        )
    refuse_moved({f"train.{k}": v for k in MOVED if (v := getattr(train, k)) != _DEFAULTS[k]}, train)
    _check_sizes(train, config.model)
    _check_evaluation(config, changed)
    _check_rates(train)
    _check_read(config, changed)
    kernels.check(config)
    steps = run_length(train)
    if steps is not None:
        check_warmup(train, steps, changed)
        _check_decay(train, steps, changed)
    check_machine(config)


def check_warmup(train: TrainConfig, steps: int, changed: Collection[str] = ()) -> None:
    """ConfigError for a warm-up that the run is too short for. A preset's schedule may be meant for a longer run."""
    if train.warmup > steps:
        raise wrong_value(
            "train.warmup",
            train.warmup,
            f"longer than the run, {length_words(train, steps)}.",
            code="warmup-longer-than-run",
            steps=steps,
        )
    asked = "train.warmup" in changed or "train.schedule" in changed
    if asked and train.schedule != "constant" and train.warmup and train.warmup >= steps:
        raise wrong_value(
            "train.warmup",
            train.warmup,
            f"is all of the run, {length_words(train, steps)}, so train.schedule={train.schedule} would never begin.",
            code="warmup-is-all",
            schedule=train.schedule,
        )


def _check_decay(train: TrainConfig, steps: int, changed: Collection[str]) -> None:
    falling = max(1, round(train.decay_share * steps))
    if train.schedule == "wsd" and "train.decay_share" in changed and falling + train.warmup > steps:
        raise ConfigError(
            f"train.decay_share={train.decay_share:g}: the last {falling} of {steps} steps begin within the warm-up, "
            f"train.warmup={train.warmup}.",
            code="decay-within-warmup",
            key="train.decay_share",
            value=train.decay_share,
            falling=falling,
            steps=steps,
            warmup=train.warmup,
        )


def _refuse_ignored(changed: Collection[str], keys: Collection[str], why: str) -> None:
    for key in sorted(changed):
        if key in keys or key.split(".")[0] in keys:
            raise ConfigError(f"{key}: would be ignored, because {why}.", code="train-key-ignored", key=key)


def refuse_moved(given: Mapping[str, Any], train: TrainConfig) -> None:
    """ConfigError for a key that has gone to `evaluation`, with the line to write instead. `given`: key -> value."""
    every, batches = (f"train.{key}" for key in MOVED)
    if every in given:
        line = f"evaluation.every={given[every]}"
        raise wrong_value(every, given[every], f"has moved. Write {line}.", code="interval-moved", suggestion=line)
    if batches in given and isinstance(given[batches], int):
        targets = given[batches] * train.batch_size * (train.context or 1)
        line = f"evaluation.tokens={targets}"
        said = f"has moved, and counts targets instead. Write {line}."
        raise wrong_value(batches, given[batches], said, code="batches-moved", suggestion=line)


def _check_evaluation(config: Config, changed: Collection[str]) -> None:
    evaluation, longest = config.evaluation, config.model.context_length
    if evaluation.context and evaluation.context > longest:
        said = f"longer than model.context_length={longest}."
        raise wrong_value("evaluation.context", evaluation.context, said, code="evaluation-context-too-long")
    if not evaluation.final:
        _refuse_ignored(changed, {"evaluation.final_tokens"}, "evaluation.final is false")


def _check_sizes(train: TrainConfig, model: ModelConfig) -> None:
    assert train.budget is not None
    if train.context and train.context > model.context_length:
        raise wrong_value(
            "train.context",
            train.context,
            f"longer than model.context_length={model.context_length}.",
            code="train-context",
            context_length=model.context_length,
        )
    if train.batch_size % train.accumulate:
        raise wrong_value(
            "train.accumulate",
            train.accumulate,
            f"train.batch_size={train.batch_size} is not divisible by it.",
            code="accumulate-divides",
            batch_size=train.batch_size,
        )
    if train.budget_unit == "steps" and train.budget != int(train.budget):
        raise wrong_value("train.budget", train.budget, "steps are whole numbers.", code="budget-not-whole")


def _check_rates(train: TrainConfig) -> None:
    for key in ("beta1", "beta2"):
        if getattr(train, key) >= 1:
            raise wrong_value(f"train.{key}", getattr(train, key), "must be below 1.", code="not-below-one")
    if train.budget_unit == "seconds" and "total" in registry.get("schedule", train.schedule).inputs:
        raise wrong_value(
            "train.schedule",
            train.schedule,
            "with a budget in seconds nobody knows how many steps there will be. "
            "Allowed: constant (with or without warm-up).",
            code="schedule-of-seconds",
        )
    if train.budget_unit == "seconds" and train.warmup >= 1:
        raise wrong_value(
            "train.warmup",
            f"{train.warmup:g}",
            "with a budget in seconds nobody knows how many steps there will be, and the run could end before its peak "
            "rate. Give a share of the time below 1, as in train.warmup=0.1.",
            code="warmup-of-seconds",
        )


def _check_read(config: Config, changed: Collection[str]) -> None:
    train = config.train
    chosen = parts(train)
    for part in chosen:
        of_kind = {key for other in registry.components(part.kind).values() for key in other.inputs}
        unread = of_kind & _LEFT_TO_PARTS - {key for other in chosen for key in other.inputs}
        _refuse_ignored(changed, {f"train.{key}" for key in unread}, f"train.{part.kind}={part.name} does not read it")
    if not train.weight_decay:
        _refuse_ignored(changed, {"train.decay_embeddings", "train.decay_vectors"}, "train.weight_decay is 0")
    if train.probe_every and not _any_probe_looks(config):
        _refuse_ignored(changed, {"train.probe_every"}, "no probe is on that could look")


def _any_probe_looks(config: Config) -> bool:
    """Whether a probe is on whose findings change with training."""
    on = [name for name, options in vars(config.probes).items() if options is not None]
    return any(not registry.get("probe", name).facts["static"] for name in on)
