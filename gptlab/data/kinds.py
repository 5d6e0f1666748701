"""The kinds of data by name, and how a plugin adds one.

    @register_data("dice", tokenizers=("ids",))
    def dice(vocab_size: int, sides: int = 6) -> TokenSource:
        '''Throws of a die.'''

makes `data.source=dice` and `data.options.sides` exist. As for the components of a model, the signature is the
declaration: a parameter named like a key of the data config, `vocab_size` or `seed`, is an *input*; every other one has
a default and is an *option*. An input without a default is a key that the user has to give; one with a default has that
value where the key is null. Keys that no parameter names are refused, so nothing configured is ignored.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gptlab import registry
from gptlab.config import DataConfig
from gptlab.errors import unknown

# Keys that belong to some kinds of data and not to others; null where they are not set.
_COMMON = frozenset({"source", "tokenizer", "prompt", "options"})
KEYS = tuple(f.name for f in dataclasses.fields(DataConfig) if f.name not in _COMMON)
_OFFERED = frozenset({*KEYS, "tokenizer", "vocab_size", "seed"})
_BUILTINS = ("texts", "huggingface", "sentences", "markov", "induction", "brackets", "numbers")
TEXT_TOKENIZERS = ("gpt2", "byte", "char")


@dataclass(frozen=True)
class Kind:
    """One registered kind of data."""

    component: registry.Component
    tokenizers: tuple[str, ...]  # those that can read it; empty when it has no tokens
    defaults: dict[str, Any]  # of the keys that it reads and does not need

    @property
    def reads(self) -> tuple[str, ...]:
        """Its keys of the data config."""
        return tuple(key for key in KEYS if key in self.component.inputs)

    def make(self, data: DataConfig, **given: Any) -> Any:
        """The source that a settled and checked config declares."""
        offered = {**{key: getattr(data, key) for key in KEYS}, "tokenizer": data.tokenizer, **given}
        inputs = {name: offered[name] for name in self.component.inputs}
        return self.component.factory(**inputs, **self.component.checked_options(data.options))


_kinds: dict[str, Kind] = {}


def register_data(
    name: str, tokenizers: tuple[str, ...] = TEXT_TOKENIZERS
) -> Callable[[registry.Factory], registry.Factory]:
    """Decorator: make a function that returns a source the kind of data `name`. A taken name is refused."""

    def add(factory: registry.Factory) -> registry.Factory:
        component = registry.describe("data", name, factory, _OFFERED, "data.options")
        registry.refuse_taken(_kinds[name].component if name in _kinds else None, component)
        parameters = inspect.signature(factory).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.name in KEYS and p.default is not p.empty}
        _kinds[name] = Kind(component, tokenizers, defaults)
        return factory

    return add


def kinds() -> dict[str, Kind]:
    """All kinds of data by name, gptlab's own first."""
    for module in _BUILTINS:
        importlib.import_module(f"gptlab.data.{module}")
    registry.load_installed()
    return dict(_kinds)


def kind(name: str) -> Kind:
    """The kind of data `name`. ConfigError when there is none."""
    known = kinds()
    if name not in known:
        raise unknown("data.source", name, known)
    return known[name]
