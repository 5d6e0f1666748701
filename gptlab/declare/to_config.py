"""What one key means for another: from a composed config to a `Config` that can run, or one short error.

keys_read           which components are chosen and which keys they read
one_spelling        what was left open written down, and one spelling for one model
model_checks        impossible pairs, names and options that are not there, keys that nothing would read
measurement_checks  probes, data and prompts that do not fit
training_checks     trainings that cannot be
idle_values         values that one run does not use, and another run of the same sweep may
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gptlab import analyses, registry
from gptlab import config as schema
from gptlab.config import Config, ModelConfig
from gptlab.declare.measurement_checks import (
    check_contexts,
    check_data_fits,
    check_generation,
    check_paths,
    check_tokens,
)
from gptlab.declare.model_checks import check_all_read, check_model
from gptlab.declare.omegaconf_errors import refused
from gptlab.declare.one_spelling import settle
from gptlab.declare.plugin_probes import own_probes, probes_schema, typed, without_null
from gptlab.declare.training_checks import check_training
from gptlab.errors import ConfigError
from gptlab.margin import Margin
from gptlab.metrics import metric
from gptlab.model.pattern import expanded
from gptlab.store.config_file import literal


def from_stored(plain: dict[str, Any]) -> Config:
    """The config of a run as this gptlab understands it: checked, and with a default for each key that is newer.

    ConfigError when it cannot be run any more.
    """
    return from_omegaconf(literal(plain))


def from_omegaconf(node: Any, changed: Collection[str] = ()) -> Config:
    """A checked `Config` from a composed DictConfig or nested dict. Extra keys, also those behind `+`, are refused.

    `changed`: the keys that the user set; a mapping to what they were set to lets a refusal quote it.
    """
    plain = OmegaConf.to_container(node, resolve=False) if isinstance(node, DictConfig) else dict(node)
    assert isinstance(plain, dict)
    plain.pop("hydra", None)
    _load_plugins(plain.get("plugins"))
    plain["probes"] = without_null(plain.get("probes", {}))
    place = Config(probes=probes_schema(plain["probes"]))
    try:
        merged = OmegaConf.merge(OmegaConf.structured(place), plain)
        missing = OmegaConf.missing_keys(merged)
        if missing:
            raise ConfigError(f"{min(missing)}: a value is needed.", code="value-missing", key=min(missing))
        config = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise refused(error, {**plain, "probes": own_probes(plain["probes"])}) from error
    assert isinstance(config, Config)
    return settled_and_checked(config, changed)


def settled_and_checked(config: Config, changed: Collection[str] = ()) -> Config:
    """A copy of `config`, made by whoever, in its one spelling. ConfigError for the first thing that cannot be.

    `changed`: dotted keys that the user set, presets aside, perhaps with their values. The plugins are loaded.
    """
    schema.check_fields(config)
    if config.model.architecture == "gpt":
        config = replace(config, model=expanded(config.model))
    typed(config.probes)
    try:
        settled = settle(config)
        _check(settled, changed, config.model)
    except ConfigError as error:
        error.with_facts(contradiction=error.code != "unknown-name")  # values that are one by one all right
        raise
    return settled


def _check(config: Config, changed: Collection[str], declared: ModelConfig) -> None:
    """`config` is settled; `declared`: its model as it was before."""
    from gptlab.data.config_rules import check_data

    experiment = config.experiment
    check_model(config.model)
    check_data(config.data, config.model.vocab_size)
    check_data_fits(config)
    check_contexts(config)
    check_paths(config)
    check_generation(config)
    check_all_read(config, changed, declared)
    if experiment.margin:
        Margin.parse(experiment.margin, "experiment.margin")
    if experiment.primary_metric:
        metric(experiment.primary_metric, "experiment.primary_metric")
    check_training(config, changed)
    analyses.check(experiment)
    check_tokens(config)


def _load_plugins(named: Any) -> None:
    """Before anything is checked: which keys there are hangs on them. What is no list of names is refused later."""
    if isinstance(named, list) and all(isinstance(name, str) for name in named):
        registry.load_plugins(named)
