"""From names to modules: builds each component of a model from the inputs that its signature asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gptlab import registry
from gptlab.config import ModelConfig


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


class Parts:
    """Callable: `parts("norm", dim=768)` builds the norm that the config names, a new one on each call.

    `layer` is the index of the block that the parts are for, None outside the blocks.
    """

    def __init__(self, config: ModelConfig, layer: int | None = None) -> None:
        self.config = with_dropout_sites(config)
        self.layer = layer

    def __call__(self, slot: str, name: str | None = None, **inputs: Any) -> Any:
        part = registry.get(slot, name or getattr(self.config, slot))
        given = self.config.options.get(slot, {})
        # Two kinds of shortcut share one options node: each takes what it declares (validation refuses the rest).
        options = part.checked_options({k: v for k, v in given.items() if k in {o.name for o in part.options}})
        return part.factory(**{key: self._input(key, inputs) for key in part.inputs}, **options)

    def _input(self, key: str, inputs: dict[str, Any]) -> Any:
        if key in inputs:
            return inputs[key]
        if key == "layer":
            return self.layer
        if key == "position":  # what an attention layer is given: a position of its own, if that acts inside attention
            acts_here = getattr(registry.get("position", self.config.position).factory, "in_attention", False)
            return self("position") if acts_here else None
        return self(key) if key in registry.SLOTS else getattr(self.config, key)
