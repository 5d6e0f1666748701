"""The kinds of data by name, and how a plugin adds one.

    @register("data", "dice", tokenizers=("ids",))
    def dice(vocab_size: int, sides: int = 6) -> TokenSource:
        '''Throws of a die.'''

makes `data.source=dice` and `data.options.sides` exist. As for the components of a model, the signature is the
declaration: a parameter named like a key of the data config, `vocab_size` or `seed`, is an *input*; every other one has
a default and is an *option*. An input without a default is a key that the user has to give; one with a default has that
value where the key is null. Keys that no parameter names are refused, so nothing configured is ignored.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gptlab import registry
from gptlab.config import DataConfig
from gptlab.registry import TEXT_TOKENIZERS

# Keys that belong to some kinds of data and not to others; null where they are not set.
_COMMON = frozenset({"source", "tokenizer", "prompt", "options"})
KEYS = tuple(f.name for f in dataclasses.fields(DataConfig) if f.name not in _COMMON)


@dataclass(frozen=True)
class Kind:
    """One registered kind of data."""

    component: registry.Component

    @property
    def tokenizers(self) -> tuple[str, ...]:
        """Those that can read it; empty when it has no tokens."""
        return tuple(self.component.facts["tokenizers"])

    @property
    def reads(self) -> tuple[str, ...]:
        """Its keys of the data config."""
        return tuple(key for key in KEYS if key in self.component.inputs)

    @property
    def defaults(self) -> dict[str, Any]:
        """Of the keys that it reads and does not need."""
        parameters = inspect.signature(self.component.factory).parameters.values()
        return {p.name: p.default for p in parameters if p.name in KEYS and p.default is not p.empty}

    def make(self, data: DataConfig, **given: Any) -> Any:
        """The source that a settled and checked config declares."""
        offered = {**{key: getattr(data, key) for key in KEYS}, "tokenizer": data.tokenizer, **given}
        return self.component.make(offered, data.options)


def register_data(
    name: str, tokenizers: tuple[str, ...] = TEXT_TOKENIZERS
) -> Callable[[registry.Factory], registry.Factory]:
    """`register("data", name, tokenizers=tokenizers)`, by its older name."""
    return registry.register("data", name, tokenizers=tokenizers)


def kinds() -> dict[str, Kind]:
    """All kinds of data by name, gptlab's own first."""
    return {name: Kind(component) for name, component in registry.components("data").items()}


def kind(name: str) -> Kind:
    """The kind of data `name`. ConfigError when there is none."""
    return Kind(registry.get("data", name))
