"""Which key of a variant is solved to match its cost, where the search begins, and in which steps it goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gptlab.config import Config, MatchConfig, ModelConfig
from gptlab.errors import unknown
from gptlab.values import kind_of

HIDDEN, BUDGET = "model.hidden_dim", "train.budget"
GIVES_WAY = {HIDDEN: ("model.expansion", "model.hidden_multiple")}  # keys that say the same in another way
_DATA = ("vocab_size", "context_length", "hidden_multiple")  # sizes of what is read, and a rounding: no free keys


def key_of(match: MatchConfig, own: Config) -> str:
    """The key that is solved. ConfigError for one that cannot be."""
    if match.cost == "training_flops":
        if match.by not in (None, BUDGET):
            raise unknown("match.by (training_flops)", str(match.by), [BUDGET])
        return BUDGET
    by = match.by or HIDDEN
    named = [f"model.{f.name}" for f in dataclasses.fields(ModelConfig) if _whole(f"model.{f.name}", own)]
    allowed = [key for key in named if key.partition(".")[2] not in _DATA]
    if by not in allowed and not (by.startswith("model.options.") and by.count(".") == 3 and _whole(by, own)):
        raise unknown("match.by", by, allowed)
    return by


def _whole(key: str, own: Config) -> bool:
    """Whether a key of the model is a whole number; of an option, as the component declares it."""
    if key.startswith("model.options."):
        return any(kind in (int, int | None) for kind, _ in _options(key, own))
    return kind_of(key) in (int, int | None)


def _options(key: str, own: Config) -> list[tuple[Any, Any]]:
    """(type, default) of an option in the components that have it."""
    from gptlab.declare.keys_read import chosen

    _, _, slot, name = key.split(".")
    parts = [part for part in chosen(own.model) if part.kind == slot]
    return [(option.type, option.default) for part in parts for option in part.options if option.name == name]


def start_of(by: str, own: Config, changed: Mapping[str, Any]) -> tuple[int, int]:
    """(the value that the variant has, the step between admissible values). `changed`: what the user set.

    A width that was asked to be a multiple stays one, also where a settled config has no need to say so.
    """
    from gptlab.model.feed_forward import hidden_width

    model = own.model
    if by == BUDGET:
        steps = {"steps": 1, "tokens": own.train.batch_size * (own.train.context or model.context_length)}
        step = steps.get(own.train.budget_unit, 1)
        return int(own.train.budget or 0), step
    if by == HIDDEN:
        width = hidden_width(model.emb_dim, model.expansion, model.hidden_dim, model.hidden_multiple)
        return width, changed.get("model.hidden_multiple") or model.hidden_multiple or 1
    if by.startswith("model.options."):
        _, _, slot, name = by.split(".")
        value = model.options.get(slot, {}).get(name, _options(by, own)[0][1])
        return int(value or 1), 1
    name = by.partition(".")[2]
    from_others = {"head_dim": model.emb_dim // max(1, model.n_heads), "n_kv_heads": model.n_heads}
    value = getattr(model, name)
    step = model.n_heads if name == "emb_dim" and model.head_dim is None else 1
    return int(from_others[name] if value is None else value), step


def with_value(own: Config, by: str, value: int) -> Config:
    """A copy of the config with the key set; its hidden width takes the place of what says the same in another way."""
    if by == BUDGET:
        return replace(own, train=replace(own.train, budget=typed(by, value)))
    name = by.removeprefix("model.")
    if name.startswith("options."):
        _, slot, option = name.split(".")
        options = {**own.model.options, slot: {**own.model.options.get(slot, {}), option: value}}
        return replace(own, model=replace(own.model, options=options))
    sizes: dict[str, Any] = {"hidden_multiple": None, name: value} if by == HIDDEN else {name: value}
    return replace(own, model=replace(own.model, **sizes))


def typed(by: str, value: int) -> int | float:
    """The value as the key has it."""
    return float(value) if by == BUDGET else value
