"""What can be tuned, and how: checked before any trial is planned."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gptlab.config import Config, TrainConfig, TuneConfig
from gptlab.declare.to_config import settled_and_checked
from gptlab.errors import ConfigError, unknown, wrong_value
from gptlab.identity import identity
from gptlab.metrics import metric
from gptlab.tuned import Protocol, grid
from gptlab.values import kind_of

if TYPE_CHECKING:
    from gptlab.declare.composer import Job
    from gptlab.planning.plan import Plan

_NOT_TUNED = ("budget", "log_every")  # how long, and how often something is written: no value of these is better
KEYS = tuple(
    f"train.{f.name}"
    for f in dataclasses.fields(TrainConfig)
    if kind_of(f"train.{f.name}") in (float, float | None) and f.name not in _NOT_TUNED
)


def value_of(config: Config, key: str) -> Any:
    """What a key of `train` is set to."""
    return getattr(config.train, key.partition(".")[2])


def with_value(config: Config, key: str, value: float) -> Config:
    """A copy of the config with that key of `train` set."""
    changed: dict[str, Any] = {key.partition(".")[2]: value}
    return replace(config, train=replace(config.train, **changed))


def of_all(jobs: Sequence[Job]) -> TuneConfig:
    """How the runs of a command are tuned: all in one way. ConfigError where they differ."""
    found = [job.config.tune for job in jobs]
    if any(tune != found[0] for tune in found):
        raise ConfigError(
            "tune: every arm gets the same trials, so it cannot be swept, nor set by an ablation.",
            code="tune-swept",
            key="tune",
        )
    return found[0]


def checked(plan: Plan, tune: TuneConfig) -> Protocol:
    """What is fixed before the first trial. ConfigError for what cannot be tuned, or would flatter an arm."""
    if len(tune.keys) > 1:
        raise wrong_value(
            "tune.keys",
            f"[{','.join(tune.keys)}]",
            "one key is tuned at a time. Tune the first, set it, and tune the next.",
            code="tune-several-keys",
        )
    (key,) = tune.keys
    if key not in KEYS:
        raise unknown("tune.keys", key, KEYS)
    _check_seeds(plan, tune)
    if tune.max_trials < tune.points:
        raise wrong_value(
            "tune.max_trials",
            tune.max_trials,
            f"fewer than tune.points={tune.points}.",
            code="tune-max-trials",
            points=tune.points,
        )
    _check_arms(plan, key, tune)
    name = plan.primary_metric
    about = metric(name) if name else None
    if about is None or about.direction == "neither" or about.kind in ("exact", "timing"):
        raise ConfigError(
            f"tune: experiment.primary_metric={name} is counted, timed, or better in neither direction, so no rate can "
            "be chosen by it. Take final_loss.",
            code="tune-metric",
            key="experiment.primary_metric",
            value=name,
            suggestion="final_loss",
        )
    seeds = tuple(tune.seeds)
    return Protocol(key, tune.factor, tune.points, tune.max_trials, seeds, name, about.direction == "lower")


def _check_seeds(plan: Plan, tune: TuneConfig) -> None:
    """Seeds that choose are not those that decide: what is best on a seed was also lucky on it."""
    if not tune.seeds or len(set(tune.seeds)) < len(tune.seeds):
        raise wrong_value(
            "tune.seeds", tune.seeds, "one seed or more, each of them once.", code="tune-seeds-not-distinct"
        )
    both = sorted({run.seed for run in plan.runs} & set(tune.seeds))
    if both:
        raise ConfigError(
            f"tune.seeds: {', '.join(map(str, both))} would tune and decide. What is chosen for its luck with a seed "
            "is too good on it: take other seeds.",
            code="tune-seeds-decide",
            key="tune.seeds",
            value=both,
        )


def _check_arms(plan: Plan, key: str, tune: TuneConfig) -> None:
    """Every arm is trained, has a value to start from, reads it, and differs from the others in something else."""
    arms: dict[str, str] = {}
    for run in {run.label: run for run in plan.runs}.values():
        if run.config.train.budget is None:
            raise ConfigError(
                "tune: train.budget is null, so nothing is trained. train=toy or train=small trains.",
                code="tune-untrained",
                key="tune",
            )
        start = value_of(run.config, key)
        if not start or start <= 0:
            raise wrong_value(
                key, start, f"{run.label} starts its grid there, so it must be above 0.", code="tune-start"
            )
        for value in grid(start, tune.factor, tune.points):
            try:
                one = settled_and_checked(with_value(run.config, key, value), (key,))
            except ConfigError as error:
                raise error.reworded(f"tune: {run.label}: {error}", arm=run.label) from error
        same = identity(replace(with_value(one, key, 1.0), seed=0))
        other = arms.setdefault(same, run.label)
        if other != run.label:
            raise ConfigError(
                f"tune: {other} and {run.label} differ in {key} alone, which is tuned: they would be one arm.",
                code="tune-same-arm",
                key=key,
                one=other,
                two=run.label,
            )
