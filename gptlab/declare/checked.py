"""What one key means for another: from a composed config to a `Config` that can run, or one short error.

reads     which components are chosen and which keys they read
settling  what was left open written down, and one spelling for one model
rules     values out of range, impossible pairs, keys that nothing would read
measuring probes, data and prompts that do not fit
idle      values that one run does not use, and another run of the same sweep may
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gptlab import config as schema
from gptlab import registry
from gptlab.config import Config
from gptlab.declare.model_rules import check
from gptlab.declare.plugin_probes import own_probes, probes_schema, typed, without_null
from gptlab.declare.refusals import refused
from gptlab.declare.settling import settle
from gptlab.errors import ConfigError
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
            raise ConfigError(f"{min(missing)}: a value is needed.", code="value-missing")
        config = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise refused(error, {**plain, "probes": own_probes(plain["probes"])}) from error
    assert isinstance(config, Config)
    schema.check_fields(config)
    typed(config.probes)
    try:
        settled = settle(config)
        check(settled, changed, config.model)
    except ConfigError as error:
        error.with_facts(contradiction=error.code != "unknown-name")  # values that are one by one all right
        raise
    return settled


def _load_plugins(named: Any) -> None:
    """Before anything is checked: which keys there are hangs on them. What is no list of names is refused later."""
    if isinstance(named, list) and all(isinstance(name, str) for name in named):
        registry.load_plugins(named)
