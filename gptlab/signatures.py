"""What a function or class declares by its signature: what it has to be given, and what a user may set.

A parameter named like something that its kind is offered (a key of the config, another slot) is an *input*; every
other one has a default and is an *option*. So a component never sees the config, can be used on its own, and the
registry knows which keys it reads.

A part of the model is given the keys of its config; another slot, or `shortcut_attention` and `shortcut_feed_forward`,
as a built module (`norm` as a function of the width); `layer`, the number of its block; and `make_part`, which builds a
part of another slot with that slot's options, as in `make_part("norm", "rmsnorm", dim=64)`.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gptlab.errors import ConfigError, unknown
from gptlab.values import must_be


@dataclass(frozen=True)
class Option:
    """One argument of a component that a user may set."""

    name: str
    type: Any
    default: Any


@dataclass(frozen=True)
class Component:
    """Something registered under a name: of a slot of the model, or a probe, a kind of data, an analysis, ..."""

    kind: str
    name: str
    factory: Callable[..., Any]
    inputs: tuple[str, ...]
    options: tuple[Option, ...]
    summary: str
    module: str
    options_key: str  # where in the config its options are set
    facts: Mapping[str, Any] = field(default_factory=dict)  # what was said of it when it was registered

    def checked_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """`given` converted to the declared types. ConfigError for an unknown name or a wrong type."""
        if not given:
            return {}
        where = self.options_key
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                raise unknown(f"{where} ({self.kind}={self.name})", name, known)
        schema = dataclasses.make_dataclass(f"{self.name}_options", [(name, known[name].type) for name in given])
        try:
            merged = OmegaConf.merge(OmegaConf.structured(schema), dict(given))
        except OmegaConfBaseException as error:
            key = error.full_key or ""
            option = str(key).partition("[")[0].partition(".")[0]
            raise must_be(f"{where}.{option}", given.get(option), known[option].type) from error
        plain = OmegaConf.to_container(merged)
        assert isinstance(plain, dict)
        return {name: plain[name] for name in given}

    def settled_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """`checked_options` without those at their defaults: equal declarations then have equal identities."""
        defaults = {option.name: option.default for option in self.options}
        return {name: value for name, value in self.checked_options(given).items() if value != defaults[name]}

    def make(self, offered: Mapping[str, Any], options: Mapping[str, Any], *first: Any) -> Any:
        """Call it: with what its kind always hands over `first`, its inputs out of `offered`, and its options."""
        inputs = {name: offered[name] for name in self.inputs}
        return self.factory(*first, **inputs, **self.checked_options(options))


def read(
    kind: str, name: str, factory: Callable[..., Any], offered: Collection[str], options_key: str, first: int = 0
) -> Component:
    """The component that a factory's signature declares; its `first` parameters are handed over by position."""
    target = factory.__init__ if inspect.isclass(factory) else factory
    hints = typing.get_type_hints(target)
    inputs: list[str] = []
    options: list[Option] = []
    for parameter in list(inspect.signature(factory).parameters.values())[first:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.name in offered:
            inputs.append(parameter.name)
        elif parameter.default is not parameter.empty:
            options.append(Option(parameter.name, hints.get(parameter.name, Any), parameter.default))
        else:
            given = f"Given are: {', '.join(sorted(offered))}." if offered else "An option needs a default."
            raise ConfigError(
                f"{kind} {name!r}: parameter {parameter.name!r} has no default and is nothing that a {kind} is given. "
                f"{given}",
                code="component-needs-unknown",
                kind=kind,
                name=name,
                parameter=parameter.name,
                allowed=sorted(offered),
            )
    summary = (inspect.getdoc(factory) or "").split("\n")[0]
    return Component(kind, name, factory, tuple(inputs), tuple(options), summary, factory.__module__, options_key)
