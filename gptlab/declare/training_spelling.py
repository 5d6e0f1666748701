"""One spelling for one training: lengths and intervals in steps, contexts written out, options without defaults."""

from __future__ import annotations

import dataclasses
import math

from gptlab import kernels, registry
from gptlab.config import Config, EvaluationConfig, ModelConfig, TrainConfig
from gptlab.errors import unknown, wrong_value

_CHOICES = ("optimizer", "schedule")


def settle_training(train: TrainConfig, model: ModelConfig) -> TrainConfig:
    """A copy with the context written out. Without a budget no other key means anything: they get their defaults."""
    if train.budget is None:
        return TrainConfig()
    options = {}
    for part in parts(train):
        given = train.options.get(part.kind)
        if given is not None and (kept := part.settled_options(given)):
            options[part.kind] = kept
    return dataclasses.replace(train, context=train.context or model.context_length, options=options,
                               kernels=kernels.checked(train.kernels))  # fmt: skip


def parts(train: TrainConfig) -> tuple[registry.Component, registry.Component]:
    """The optimizer and the schedule that are chosen. ConfigError for a name that is not registered, or its options."""
    for kind in train.options:
        if kind not in _CHOICES:
            raise unknown("train.options", kind, _CHOICES)
    return registry.get("optimizer", train.optimizer), registry.get("schedule", train.schedule)


def settle_evaluation(config: Config) -> EvaluationConfig:
    """A copy with the context written out; the defaults where nothing is trained. `config.train` is settled."""
    if config.train.budget is None:
        return EvaluationConfig()
    return dataclasses.replace(config.evaluation, context=config.evaluation.context or config.train.context)


def settle_intervals(config: Config) -> Config:
    """A copy with warm-up and intervals in whole steps, where they are shares of a run whose steps the config tells.

    0.05 is every 20th of the run. ConfigError for 2.5 steps.
    """
    train, evaluation = config.train, config.evaluation
    if train.budget is None:
        return config
    given = {"train.warmup": train.warmup, "train.log_every": train.log_every, "evaluation.every": evaluation.every}
    warmup, log_every, every = (_in_steps(key, value, run_length(train)) for key, value in given.items())
    return dataclasses.replace(
        config,
        train=dataclasses.replace(train, warmup=warmup, log_every=log_every),
        evaluation=dataclasses.replace(evaluation, every=every),
    )


def _in_steps(key: str, value: float, steps: int | None) -> float:
    if value >= 1 or not value:
        if value != int(value):
            said = "must be whole steps, or below 1 a share of the run."
            raise wrong_value(key, f"{value:g}", said, code="interval-not-whole")
        return int(value)
    return value if steps is None else max(1, round(value * steps))


def run_length(train: TrainConfig) -> int | None:
    """Steps of the run, as far as the config alone tells: not of a budget in seconds or FLOPs."""
    assert train.budget is not None
    if train.budget_unit == "steps":
        return int(train.budget)
    if train.budget_unit == "tokens" and train.context:
        return max(1, math.ceil(train.budget / (train.batch_size * train.context)))
    return None


def length_words(train: TrainConfig, steps: int) -> str:
    """How long the run is, as its config says it."""
    words = f"train.budget={train.budget:g} {train.budget_unit}"
    return words if train.budget_unit == "steps" else f"{steps} steps ({words})"
