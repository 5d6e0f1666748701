"""One spelling for one declaration, so that equal models have equal identities."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from gptlab import registry
from gptlab.config import Config, ModelConfig
from gptlab.declare.reads import chosen, keys_read, takers
from gptlab.declare.training_rules import settle_training
from gptlab.declare.unused_values import default_metric
from gptlab.model.per_layer import checked_settings
from gptlab.registry import Component

# Each stands for one place; left open, the place has the general key's value.
GENERAL = {
    "shortcut_attention": "shortcut",
    "shortcut_feed_forward": "shortcut",
    "drop_embedding": "drop_rate",
    "drop_attention": "drop_rate",
    "drop_shortcut": "drop_rate",
    "n_kv_heads": "n_heads",
}

_SLOT_OF = {registry.key_of(slot): slot for slot in registry.SLOTS} | dict.fromkeys(registry.SHORTCUTS, "shortcut")


def settle(config: Config) -> Config:
    """A copy with contexts and tokenizer written out where they were left open, and the model in its one spelling."""
    from gptlab.data.config_rules import settle_data

    model, probes = config.model, config.probes

    def context(probe: Any, length: int) -> Any:
        return probe and dataclasses.replace(probe, context=probe.context or min(length, model.context_length))

    probes = dataclasses.replace(
        probes,
        parameters=context(probes.parameters, model.context_length),
        shapes=context(probes.shapes, 4),
        gradients=context(probes.gradients, 64),
        activations=context(probes.activations, 64),
    )
    data = settle_data(config.data, model.vocab_size)
    train = settle_training(config.train, model)
    primary = config.experiment.primary_metric or default_metric(config)
    return dataclasses.replace(
        config,
        probes=probes,
        data=data,
        train=train,
        model=_settle_model(model),
        experiment=dataclasses.replace(config.experiment, primary_metric=primary),
    )


def _settle_model(model: ModelConfig) -> ModelConfig:
    """One spelling for one model, so that equal models have equal identities.

    What a place has from the general key anyway is left to it, unless no place would read that key otherwise; options
    take their declared types (1 becomes 1.0) and are left out where they are at their defaults.
    """
    read = keys_read(model)
    general = {key: other for key, other in GENERAL.items() if other in read}
    same = [key for key, other in general.items() if getattr(model, key) == getattr(model, other)]
    open_again: dict[str, Any] = dict.fromkeys(same)
    if model.drop_feed_forward == 0.0:
        open_again["drop_feed_forward"] = None
    layers = {str(span): checked_settings(given, f"model.layers.{span}") for span, given in model.layers.items()}
    layers = {span: {key: _first_name(key, value) for key, value in given.items()} for span, given in layers.items()}
    names = {key: _first_name(key, getattr(model, key)) for key in _SLOT_OF}
    model = dataclasses.replace(model, layers=layers, **names)
    return dataclasses.replace(model, options=_settle_options(model.options, chosen(model)), **open_again)


def _first_name(key: str, value: Any) -> Any:
    """Of a component registered under several names, the first one."""
    known = registry.components(_SLOT_OF[key]) if key in _SLOT_OF else {}
    if value not in known:
        return value
    return next(name for name, part in known.items() if part.factory is known[value].factory)


def _settle_options(given: dict[str, dict[str, Any]], parts: Iterable[Component]) -> dict[str, dict[str, Any]]:
    settled = {slot: dict(values) for slot, values in given.items()}
    for slot, values in given.items():
        for name, value in values.items():
            found = takers(parts, slot, name)
            if found:
                settled[slot] |= found[0].checked_options({name: value})
            defaults = [option.default for part in found for option in part.options if option.name == name]
            if defaults and all(settled[slot][name] == default for default in defaults):
                del settled[slot][name]
    return {slot: kept for slot, kept in settled.items() if kept or not given[slot]}
