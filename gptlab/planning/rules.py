"""What a study must not be: two in one, a sweep with twins, an ablation that changes nothing or fights another."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from typing import Any

from gptlab.config import Config, flatten
from gptlab.declare.composer import Composer, Job
from gptlab.declare.keys_read import chosen
from gptlab.declare.training_checks import check_warmup
from gptlab.errors import ConfigError, wrong_value
from gptlab.identity import delta, identity


def one_study(jobs: Sequence[Job]) -> None:
    """All jobs belong to one experiment, whose name can be a folder, and to one output_dir."""
    names = list(dict.fromkeys(job.config.experiment.name for job in jobs))
    if len(names) > 1:
        raise ConfigError(
            f"experiment: one command makes one study, and this asks for {', '.join(names)}. Run them in turn.",
            code="one-study-per-command",
            key="experiment",
        )
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", names[0]):
        raise ConfigError(
            f"experiment.name={names[0]!r}: it names a folder. Allowed: letters, digits and . _ -",
            code="study-name",
            key="experiment.name",
            value=names[0],
        )
    if len({job.config.output_dir for job in jobs}) > 1:
        raise ConfigError(
            "output_dir: the runs of one study share one folder, so it cannot be swept.",
            code="output-dir-swept",
            key="output_dir",
        )
    for key in ("workers", "launcher", "order", "on_error", "on_invalid"):
        if len({getattr(job.config, key) for job in jobs}) > 1:
            raise ConfigError(
                f"{key}: one command starts all its runs in one way, so it cannot be swept.",
                code="key-cannot-be-swept",
                key=key,
            )
    _check_launcher(jobs[0].config)


def refuse_idle_values(jobs: Sequence[Job]) -> None:
    """ConfigError for a value that the user set and that no run of the plan would use."""
    if not any(job.idle for job in jobs):
        return
    values = [flatten(job.config) for job in jobs]
    for job, mine in zip(jobs, values, strict=True):
        for key, error in job.idle.items():
            alike = [other for other, theirs in zip(jobs, values, strict=True) if theirs.get(key) == mine[key]]
            if any(key not in other.idle for other in alike):
                continue
            if len({str(other.idle[key]) for other in alike}) == 1:
                raise error
            said = f"{error} (in the run {' '.join(job.overrides)}; nor would any other run use it)"
            raise error.reworded(said, run=list(job.overrides))


def check_flops(job: Job) -> None:
    """How many steps a budget in FLOPs is, only the model itself tells. A plugin's is not built for that."""
    config = job.config
    train = config.train
    if train.budget is None or train.budget_unit != "flops" or not train.warmup:
        return
    if all(part.module.startswith("gptlab.") for part in chosen(config.model)):
        from gptlab.training.budget import Budget

        check_warmup(train, Budget.of(config).steps or 1, job.changed)


def _check_launcher(config: Config) -> None:
    if config.launcher == "local" and config.launcher_options:
        raise ConfigError(
            "launcher_options: launcher=local reads none.", code="launcher-options-unread", key="launcher_options"
        )
    if config.launcher != "local" and importlib.util.find_spec(config.launcher) is None:
        raise wrong_value(
            "launcher",
            config.launcher,
            f"{config.launcher} is not installed. pip install 'gptlab[{config.launcher}]'",
            code="launcher-not-installed",
        )


def refuse_idle_ablations(composer: Composer, job: Job, baseline: Job) -> None:
    """Every ablation of a stack must change something against the baseline."""
    changed = delta(baseline.config, job.config)
    values = flatten(job.config)
    for name in job.ablations:
        keys = composer.ablation_keys(name)
        if name in baseline.ablations or any(_within(key, changed) for key in keys) or (changed and not keys):
            continue
        same = next(
            (f"{key} is {values[key]!r} in both" for key in keys if key in values), "it sets nothing that counts"
        )
        raise wrong_value(
            "ablation",
            name,
            f"changes nothing against the baseline: {same}.",
            code="ablation-changes-nothing",
            same=same,
        )


def _within(key: str, changed: dict[str, Any]) -> bool:
    """Whether what a file sets under `key` is among the changes; a pattern of layers has become `model.layers`."""
    key = "model.layers" if key.startswith("model.pattern") else key
    return any(other == key or other.startswith(f"{key}.") for other in changed)


def refuse_conflicts(composer: Composer, job: Job) -> None:
    """Two stacked ablations may not set one key to two values: their order would decide, and no table would say so."""
    setters: dict[str, tuple[str, Any]] = {}
    for name in job.ablations:
        for key, value in composer.ablation_keys(name).items():
            other, set_to = setters.setdefault(key, (name, value))
            if set_to != value:
                raise ConfigError(
                    f"ablation=[{','.join(job.ablations)}]: {other} sets {key}={set_to}, {name} sets {value}.",
                    code="ablations-collide",
                    other=other,
                    set_to=set_to,
                    name=name,
                )


def refuse_twins(jobs: Sequence[Job]) -> None:
    """No two members of a sweep may be the same run: it would look like evidence that was gathered twice."""
    seen: dict[str, Job] = {}
    for job in jobs:
        other = seen.setdefault(identity(job.config), job)
        if other is not job:
            one, two = (" ".join(j.overrides) or "(no overrides)" for j in (other, job))
            raise ConfigError(
                f"two runs of this sweep are the same run: {one}  and  {two}. Leave one out.",
                code="same-run-twice",
                one=one,
                two=two,
            )
