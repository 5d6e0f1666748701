"""From names to modules: builds each component of a model from the inputs that its signature asks for."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from gptlab import registry
from gptlab.config import ModelConfig
from gptlab.model.positions import AttentionPosition


def with_dropout_sites(config: ModelConfig) -> ModelConfig:
    """A copy in which each dropout site that was left open has its rate: `drop_rate`, and 0 inside feed-forward layers.

    The book drops at three sites; the one inside the feed-forward layer is not among them.
    """

    def rate(site: float | None) -> float:
        return config.drop_rate if site is None else site

    return replace(
        config,
        drop_embedding=rate(config.drop_embedding),
        drop_attention=rate(config.drop_attention),
        drop_shortcut=rate(config.drop_shortcut),
        drop_feed_forward=config.drop_feed_forward or 0.0,
    )


@runtime_checkable
class BuildsParts(Protocol):
    """A component that has `make_part` build parts of other slots: it says which, so that their options can be set."""

    def inner_parts(self, options: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
        """(slot, name) of each, given its own options. A static method: it is asked before anything is built."""


def inner_parts(component: registry.Component, options: Mapping[str, Any]) -> list[registry.Component]:
    """What a component builds inside, beyond the inputs of its signature."""
    factory: Any = component.factory
    named = factory.inner_parts(options) if isinstance(factory, BuildsParts) else ()
    return [registry.get(slot, name) for slot, name in named]


class Parts:
    """Callable: `parts("norm", dim=768)` builds the norm that the config names, a new one on each call.

    `layer` is the index of the block that the parts are for, None outside the blocks.
    """

    def __init__(self, config: ModelConfig, layer: int | None = None) -> None:
        self.config = with_dropout_sites(config)
        self.layer = layer

    def __call__(self, slot: str, name: str | None = None, **inputs: Any) -> Any:
        part = registry.get(slot, name or getattr(self.config, registry.key_of(slot)))
        given = self.config.options.get(slot, {})
        # Two kinds of shortcut share one options node: each takes what it declares (validation refuses the rest).
        options = part.checked_options({k: v for k, v in given.items() if k in {o.name for o in part.options}})
        return part.factory(**{key: self._input(key, inputs) for key in part.inputs}, **options)

    def norm(self, dim: int) -> Any:
        """The norm that the config names, over `dim` features."""
        return self("norm", dim=dim)

    def _input(self, key: str, inputs: dict[str, Any]) -> Any:
        if key in inputs:
            return inputs[key]
        special = {"layer": self.layer, "make_part": self, "norm": self.norm}  # a norm's width is known to who asks
        if key in special:
            return special[key]
        if key == "position":  # what an attention layer is given: a position of its own, if that acts inside attention
            return self("position") if acts_in_attention(registry.get("position", self.config.position)) else None
        if key in registry.SHORTCUTS:
            return self("shortcut", getattr(self.config, key))
        return self(key) if key in registry.SLOTS else getattr(self.config, key)


def acts_in_attention(position: registry.Component) -> bool:
    """Whether a position acts on queries, keys or logits: by its signature, it makes an AttentionPosition."""
    factory = position.factory
    kind = factory if inspect.isclass(factory) else typing.get_type_hints(factory).get("return")
    return inspect.isclass(kind) and issubclass(kind, AttentionPosition)
