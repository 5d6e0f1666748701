"""The one registry: slot -> name -> component, and how outside modules add theirs.

    @register("norm", "rmsnorm")
    class RMSNorm(nn.Module):
        '''x / rms(x), scaled.'''
        def __init__(self, dim: int, eps: float = 1e-5): ...

is all that a component needs. Its signature is its declaration:

* a parameter named like something the slot is given is an *input*: a key of the model config; a slot, or
  `shortcut_attention` and `shortcut_feed_forward`, which arrive as built modules (`norm` as a function of the width);
  `layer`, the number of the block; `make_part`, which builds a part of another slot with that slot's options, as in
  `make_part("norm", "rmsnorm", dim=64)`;
* every other parameter has a default and is an *option*, set by `model.options.<slot>.<name>`.

So a component never sees the config, can be used on its own, and the registry knows which keys it reads.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gptlab.config import ModelConfig
from gptlab.errors import ConfigError, GptlabError, unknown
from gptlab.values import must_be

SLOTS: dict[str, str] = {
    "norm": "normalises the features of each token",
    "activation": "the nonlinearity inside the feed-forward layer",
    "attention": "mixes information across tokens",
    "feed_forward": "transforms each token on its own",
    "position": "tells the model where a token stands",
    "shortcut": "joins a branch to the residual stream",
    "block": "one layer of the model: which branches it has, and how they meet",
    "init": "chooses the distribution of every weight",
}
MODEL_KEYS = frozenset(f.name for f in dataclasses.fields(ModelConfig)) - {"options", "architecture", "layers"}
SLOT_KEYS = {"block": "layout"}  # where the key of the model config has another name than the slot that it fills
SHORTCUTS = ("shortcut_attention", "shortcut_feed_forward")  # inputs of these names arrive as built shortcuts
SLOT_INPUTS: dict[str, frozenset[str]] = {"norm": frozenset({"dim"})}  # what a slot is given beyond the model keys
ENTRY_POINT_GROUP = "gptlab.components"
BUILTINS = "gptlab.model"

Factory = TypeVar("Factory", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """One argument of a component that a user may set."""

    name: str
    type: Any
    default: Any


@dataclass(frozen=True)
class Component:
    """A registered implementation for a slot."""

    slot: str
    name: str
    factory: Callable[..., Any]
    inputs: tuple[str, ...]
    options: tuple[Option, ...]
    summary: str
    module: str
    options_key: str  # where in the config its options are set

    def checked_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """`given` converted to the declared types. ConfigError for an unknown name or a wrong type."""
        if not given:
            return {}
        where = self.options_key
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                raise unknown(f"{where} ({self.slot}={self.name})", name, known)
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


def key_of(slot: str) -> str:
    """The key of the model config that names the component of a slot."""
    return SLOT_KEYS.get(slot, slot)


_count = 0  # registrations of whatever kind: a plugin that adds none is a mistake
_registrars: set[str] = set()  # modules, gptlab's and torch's aside, of which something is registered
_empty: dict[str, int] = {}  # plugins that were imported and registered nothing, with the count at that time
_components: dict[str, dict[str, Component]] = {slot: {} for slot in SLOTS}


def register(slot: str, name: str) -> Callable[[Factory], Factory]:
    """Decorator: make a class or function the component `name` of `slot`. A taken name is refused."""

    def add(factory: Factory) -> Factory:
        if slot not in SLOTS:
            raise unknown("slot", slot, SLOTS)
        offered = MODEL_KEYS | SLOTS.keys() | {"layer", "make_part"} | SLOT_INPUTS.get(slot, frozenset())
        component = describe(slot, name, factory, offered, f"model.options.{slot}")
        refuse_taken(_components[slot].get(name), component)
        _components[slot][name] = component
        return factory

    return add


def refuse_taken(present: Component | None, component: Component) -> None:
    """ConfigError when another definition has the name. The same one may come again, as reloading notebooks do."""
    if present and (present.module, present.factory.__qualname__) != (component.module, component.factory.__qualname__):
        raise ConfigError(
            f"{present.slot} {present.name!r} is already registered by {present.module}; {component.module} may not."
        )
    note(component.module)


def note(module: str) -> None:
    """Remember that something of this module was registered, of whatever kind."""
    global _count
    _count += 1
    if module.partition(".")[0] not in ("gptlab", "torch"):
        _registrars.add(module)


def describe(
    slot: str, name: str, factory: Callable[..., Any], offered: Collection[str], options_key: str
) -> Component:
    """Read a factory's signature: parameters in `offered` are inputs, the others are options."""
    target = factory.__init__ if inspect.isclass(factory) else factory
    hints = typing.get_type_hints(target)
    inputs: list[str] = []
    options: list[Option] = []
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.name in offered:
            inputs.append(parameter.name)
        elif parameter.default is not parameter.empty:
            options.append(Option(parameter.name, hints.get(parameter.name, Any), parameter.default))
        else:
            raise ConfigError(
                f"{slot} {name!r}: parameter {parameter.name!r} has no default and is nothing that a {slot} is given. "
                f"Given are: {', '.join(sorted(offered))}."
            )
    summary = (inspect.getdoc(factory) or "").split("\n")[0]
    return Component(slot, name, factory, tuple(inputs), tuple(options), summary, factory.__module__, options_key)


def components(slot: str) -> dict[str, Component]:
    """All components of a slot by name, gptlab's own first."""
    if slot not in SLOTS:
        raise unknown("slot", slot, SLOTS)
    load_installed()
    return dict(_components[slot])


def get(slot: str, name: str, where: str | None = None) -> Component:
    """The component `name` of `slot`. ConfigError, naming the key `where`, when there is none."""
    known = components(slot)
    if name not in known:
        raise unknown(where or f"model.{key_of(slot)}", name, known, f"gptlab components {slot}")
    return known[name]


@functools.cache
def load_installed() -> None:
    """Import gptlab's own components and those that installed packages offer as entry points. Once per process."""
    importlib.import_module(BUILTINS)
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        _import(entry.module, f"entry point {entry.name!r}")


def load_plugins(modules: Iterable[str]) -> None:
    """Import the user's modules, so that their components are registered."""
    importlib.import_module(BUILTINS)
    for module in modules:
        before, new = _count, module not in sys.modules
        _import(module, "plugins")
        if new and _count == before and not _passes_on(sys.modules[module]):
            _empty[module] = _count
        if _empty.get(module) == _count:  # with more registered since, it may have been mended and loaded again
            raise ConfigError(f"plugins: {module} registers nothing. A component needs @register(SLOT, NAME).")


def _passes_on(plugin: ModuleType) -> bool:
    """Whether a module has in it another one that registered something, or a part of one."""
    names = [value.__name__ for value in vars(plugin).values() if inspect.ismodule(value)]
    names += [v.__module__ for v in vars(plugin).values() if inspect.isclass(v) or inspect.isfunction(v)]
    return any(f"{registrar}.".startswith(f"{name}.") for name in names for registrar in _registrars)


def _import(module: str, where: str) -> None:
    try:
        importlib.import_module(module)
    except GptlabError as error:
        raise ConfigError(f"{where}: {module}: {error}") from error
    except ModuleNotFoundError as error:
        missing = error.name or module
        itself = f"{module}.".startswith(f"{missing}.")  # or the package that it should be in
        hint = "Is its folder on PYTHONPATH?" if itself else f"{module} needs it."
        raise ConfigError(f"{where}: no module named {missing!r}. {hint}") from error
    except (Exception, SystemExit) as error:  # a script without a main guard may call sys.exit()
        raise ConfigError(f"{where}: importing {module!r} raised {type(error).__name__}: {error}") from error
