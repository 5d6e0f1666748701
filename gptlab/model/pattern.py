"""Layers of a few kinds in turn: `model.pattern`, which says in a few words what `model.layers` says of each block.

    pattern:
      kinds:
        local: {options: {attention: {window: 512}}}
        global: {}
      order: [local, local, local, global]    # again and again
      rest: [local, local]                    # what is left of the layers at the end, if anything is

A kind holds keys of a block, as a layer does; one that holds none is the model as it is.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import Any

from gptlab.config import ModelConfig
from gptlab.errors import ConfigError, unknown
from gptlab.model.per_layer import checked_settings
from gptlab.values import unknown_key

_KEYS = ("kinds", "order", "rest")
_WHERE = "model.pattern"


def expanded(model: ModelConfig) -> ModelConfig:
    """The same model, said by `layers`. ConfigError for a pattern that cannot be, or does not fill `n_layers`."""
    if not model.pattern:
        return model
    if model.layers:
        raise ConfigError(
            f"{_WHERE} beside model.layers: both say what the blocks are. Choose one of the two.",
            code="pattern-beside-layers",
            key=_WHERE,
        )
    kinds, order, rest = _checked(model.pattern)
    names = _filled(order, rest, model.n_layers)
    layers, first = {}, 0
    for name, same in groupby(names):
        last = first + len(list(same)) - 1
        if kinds[name]:
            layers[str(first) if first == last else f"{first}-{last}"] = kinds[name]
        first = last + 1
    return replace(model, layers=layers, pattern={})


def _checked(pattern: Any) -> tuple[dict[str, Any], list[str], list[str]]:
    """Kinds by name, their order, and what is left at the end."""
    given: dict[Any, Any] = pattern if isinstance(pattern, dict) else {}
    for key in given:
        if key not in _KEYS:
            raise unknown_key(_WHERE, str(key), _KEYS)
    kinds, order, rest = given.get("kinds"), given.get("order"), given.get("rest") or []
    if not (isinstance(kinds, dict) and kinds and isinstance(order, list) and order and isinstance(rest, list)):
        raise ConfigError(
            f"{_WHERE}: needs kinds, keys of a block by the name of each kind, and an order, a list of those names: "
            "pattern: {kinds: {local: {options: {attention: {window: 16}}}, global: {}}, order: [local, global]}.",
            code="pattern-needs",
            key=_WHERE,
            value=pattern,
        )
    for place, names in (("order", order), ("rest", rest)):
        for name in names:
            if name not in kinds:
                raise unknown(f"{_WHERE}.{place}", str(name), [str(kind) for kind in kinds])
    for name in kinds:
        if name not in order and name not in rest:
            raise ConfigError(
                f"{_WHERE}.kinds.{name}: would be ignored, because neither order nor rest has it.",
                code="pattern-kind-unused",
                key=f"{_WHERE}.kinds.{name}",
                value=name,
            )
    for name, settings in kinds.items():
        checked_settings(settings, f"{_WHERE}.kinds.{name}")
    return kinds, order, rest


def _filled(order: list[str], rest: list[str], n_layers: int) -> list[str]:
    """The name of each layer's kind."""
    times, left = divmod(n_layers - len(rest), len(order))
    if times < 1 or left:
        over = n_layers % len(order)
        if n_layers < len(order):
            advice = f"Choose n_layers={len(order)} or more."
        else:
            advice = f"Name the kinds of the last {over} in {_WHERE}.rest." if over else f"Leave {_WHERE}.rest out."
        raise ConfigError(
            f"{_WHERE}: rounds of {len(order)} layers and a rest of {len(rest)} do not make model.n_layers={n_layers}. "
            + advice,
            code="pattern-does-not-fill",
            key="model.n_layers",
            value=n_layers,
            period=len(order),
            rest=len(rest),
            left=over,
        )
    return order * times + rest
