"""What a variant changed, as a plan records it: options that a config leaves at their default are written out."""

from __future__ import annotations

from typing import Any

from gptlab.config import Config
from gptlab.data.kinds import kind
from gptlab.declare.keys_read import chosen
from gptlab.declare.training_spelling import parts
from gptlab.identity import delta
from gptlab.registry import Component

_OPTIONS = ("model.options.", "train.options.", "data.options.")


def changed(baseline: Config, variant: Config) -> dict[str, tuple[Any, Any]]:
    """Dotted key -> (value in the baseline, value in the variant), of the keys that differ.

    A config holds no option at its default, so that equal models have equal ids; to a reader that is the default's
    value, not null. What has no such option stays null.
    """
    found = delta(baseline, variant)
    if not any(key.startswith(_OPTIONS) and None in pair for key, pair in found.items()):
        return found
    old, new = option_defaults(baseline), option_defaults(variant)
    return {key: (old.get(key) if a is None else a, new.get(key) if b is None else b) for key, (a, b) in found.items()}


def option_defaults(config: Config) -> dict[str, Any]:
    """Dotted key -> default, of the options of all that this config chooses. What two parts of one kind (the shortcuts
    of both branches) have different defaults for is left out."""
    above: list[tuple[str, Component]] = [(f"model.options.{part.kind}", part) for part in chosen(config.model)]
    if config.train.budget is not None:
        above += [(f"train.options.{part.kind}", part) for part in parts(config.train)]
    above.append(("data.options", kind(config.data.source).component))
    found: dict[str, Any] = {}
    twice: set[str] = set()
    for place, part in above:
        for option in part.options:
            key = f"{place}.{option.name}"
            if found.setdefault(key, option.default) != option.default:
                twice.add(key)
    return {key: value for key, value in found.items() if key not in twice}
