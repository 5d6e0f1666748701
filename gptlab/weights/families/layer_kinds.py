"""Layers of several kinds: from a list of names to `model.pattern`, and from `model.layers` to one model per layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def turns(names: Sequence[str], kinds: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The pattern with the shortest round that gives this name to each layer, what is left at the end apart."""
    for period in range(1, len(names) + 1):
        whole = len(names) // period * period
        if all(name == names[at % period] for at, name in enumerate(names[:whole])):
            break
    order, rest = list(names[:period]), list(names[whole:])
    used = {name: dict(settings) for name, settings in kinds.items() if name in names}
    return {"kinds": used, "order": order, **({"rest": rest} if rest else {})}


def per_layer(model: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The keys of `model` as each layer has them, `model.layers` written into them."""
    found = [dict(model) for _ in range(model["n_layers"])]
    for span, settings in model.get("layers", {}).items():
        first, _, last = str(span).partition("-")
        for layer in found[int(first) : int(last or first) + 1]:
            slots = {slot: dict(given) for slot, given in layer.get("options", {}).items()}
            for slot, given in settings.get("options", {}).items():
                slots[slot] = {**slots.get(slot, {}), **given}
            layer |= {**settings, "options": slots}
    return found
