"""What one key means for another: from a composed config to a `Config` that can run, or one short error.

reading   which components are chosen and which keys they read
settling  what was left open written down, and one spelling for one model
rules     values out of range, impossible pairs, keys that nothing would read, data and prompts that do not fit
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from gptlab import config as schema
from gptlab import registry
from gptlab.config import Config
from gptlab.errors import ConfigError, unknown
from gptlab.validation.reading import chosen, keys_read
from gptlab.validation.rules import check
from gptlab.validation.settling import settle

__all__ = ["check", "chosen", "from_omegaconf", "keys_read", "settle", "unknown_key"]


def from_omegaconf(node: Any, changed: Collection[str] = ()) -> Config:
    """A checked `Config` from a composed DictConfig or nested dict. Extra keys, also those behind `+`, are refused."""
    plain = OmegaConf.to_container(node, resolve=False) if isinstance(node, DictConfig) else dict(node)
    assert isinstance(plain, dict)
    plain.pop("hydra", None)
    try:
        merged = OmegaConf.merge(OmegaConf.structured(Config), plain)
        missing = OmegaConf.missing_keys(merged)
        if missing:
            raise ConfigError(f"{min(missing)}: a value is needed.")
        config = OmegaConf.to_object(merged)
    except ConfigKeyError as error:
        raise unknown_key(str(error.full_key or error.key)) from error
    except OmegaConfBaseException as error:
        where = f"{error.full_key}: " if error.full_key else ""
        raise ConfigError(f"{where}{str(error).splitlines()[0]}") from error
    assert isinstance(config, Config)
    schema.check_fields(config)
    registry.load_plugins(config.plugins)
    settled = settle(config)
    check(settled, changed)
    return settled


def unknown_key(full_key: str) -> ConfigError:
    """The error for a key that the schema lacks, with the closest key of the whole schema."""
    *parents, key = full_key.split(".")
    node: Any = Config()
    for parent in parents:
        node = getattr(node, parent, None)
    siblings = [f.name for f in dataclasses.fields(node)] if dataclasses.is_dataclass(node) else []
    return unknown(f"{'.'.join(parents) or 'config'}", key, siblings)
