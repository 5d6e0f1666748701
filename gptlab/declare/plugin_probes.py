"""The probes of plugins in a config: `probes.NAME` is a key where a loaded module registers the probe NAME."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gptlab import registry
from gptlab.config import ProbesConfig, with_probes
from gptlab.errors import unknown
from gptlab.values import KEYS, at, must_be

_OWN = frozenset(f.name for f in dataclasses.fields(ProbesConfig))


def probes_schema(probes: Any) -> ProbesConfig:
    """What `probes`, a nested dict out of a config, may hold: gptlab's own, and the plugins' that it turns on.

    ConfigError for a probe or an option that no loaded module has. Values are taken as they are: see `typed`.
    """
    schemas: dict[str, type] = {}
    for name, given in probes.items() if isinstance(probes, Mapping) else ():
        if name in _OWN:
            continue
        probe = _registered(name)
        if given is None:
            continue
        if not isinstance(given, Mapping):
            raise must_be(f"probes.{name}", given, dict[str, Any])
        known = {option.name: option.default for option in probe.options}
        for option in given:
            if option not in known:
                raise at(f"probes.{name}.{option}", unknown(f"probes.{name}", option, known))
        fields = [(option, Any, dataclasses.field(default=default)) for option, default in known.items()]
        schemas[name] = dataclasses.make_dataclass(f"{name}_options", fields)
    return with_probes(schemas)()


def without_null(probes: Any) -> Any:
    """The same nested dict without the plugins' probes that are left out: off is what they are by default."""
    if not isinstance(probes, Mapping):
        return probes
    return {name: given for name, given in probes.items() if name in _OWN or given is not None}


def own_probes(probes: Any) -> Any:
    """The same nested dict without any probe of a plugin, for whoever knows only the fixed keys."""
    return {name: given for name, given in probes.items() if name in _OWN} if isinstance(probes, Mapping) else probes


def typed(probes: ProbesConfig) -> None:
    """Convert the options of the plugins' probes to their declared types, in place. ConfigError for a wrong one."""
    for name, options in vars(probes).items():
        if name not in _OWN:
            for option, value in registry.get("probe", name).checked_options(vars(options)).items():
                setattr(options, option, value)


def _registered(name: str) -> registry.Component:
    known = registry.components("probe")
    if name not in known:
        raise at(f"probes.{name}", unknown("probes", name, known, KEYS))
    return known[name]
