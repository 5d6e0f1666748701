"""One spelling for one declaration, so that equal models have equal identities."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from gptlab import registry
from gptlab.config import Config, DataConfig, ModelConfig, unread_by
from gptlab.declare.idle_values import default_metric
from gptlab.declare.keys_read import block_parts, chosen, keys_read, takers
from gptlab.declare.training_spelling import settle_evaluation, settle_intervals, settle_training
from gptlab.model.feed_forward import hidden_width
from gptlab.model.per_layer import checked_settings, layer_config, layers_of
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

Node = TypeVar("Node", Config, DataConfig)

_SIZES = ("n_heads", "head_dim", "expansion", "hidden_dim", "hidden_multiple")
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
    data = settle_data(_at_home(config.data, "path"), model.vocab_size)
    config = dataclasses.replace(config, train=settle_training(config.train, model))
    config = settle_intervals(dataclasses.replace(config, evaluation=settle_evaluation(config)))
    primary = config.experiment.primary_metric or default_metric(config)
    return dataclasses.replace(
        _at_home(config, "output_dir"),
        probes=probes,
        data=data,
        model=_settle_model(model),
        experiment=dataclasses.replace(config.experiment, primary_metric=primary),
    )


def _at_home(node: Node, key: str) -> Node:
    """A path that begins with ~ is in the user's home: no shell has seen it where it came from a file."""
    path = getattr(node, key)
    return dataclasses.replace(node, **{key: os.path.expanduser(path)}) if path and path[0] == "~" else node


def _settle_model(model: ModelConfig) -> ModelConfig:
    """One spelling for one model, so that equal models have equal identities.

    What a place has from the general key anyway is left to it, unless no place would read that key otherwise; options
    take their declared types (1 becomes 1.0) and are left out where they are at their defaults.
    """
    if model.architecture == "deep_mlp":
        model = dataclasses.replace(model, **unread_by("deep_mlp"))
    read = keys_read(model)
    general = {key: other for key, other in GENERAL.items() if other in read}
    same = [key for key, other in general.items() if getattr(model, key) == getattr(model, other)]
    open_again: dict[str, Any] = dict.fromkeys(same)
    if model.drop_feed_forward == 0.0:
        open_again["drop_feed_forward"] = None
    open_again |= _settle_sizes(model, read)
    layers = {str(span): checked_settings(given, f"model.layers.{span}") for span, given in model.layers.items()}
    layers = {span: {key: _first_name(key, value) for key, value in given.items()} for span, given in layers.items()}
    names = {key: _first_name(key, getattr(model, key)) for key in _SLOT_OF}
    model = dataclasses.replace(model, layers=layers, **names)
    options = _settle_options(model.options, chosen(model), {})
    model = dataclasses.replace(model, options=options, layers=_settle_layers(model, options))
    return dataclasses.replace(model, **open_again)


def _settle_sizes(model: ModelConfig, read: Collection[str]) -> dict[str, Any]:
    """Sizes that come to what the others say anyway are left open; an expansion that nothing reads has its default."""
    default = ModelConfig().expansion
    found: dict[str, Any] = {}
    if any(key in settings for settings in model.layers.values() for key in _SIZES if isinstance(settings, dict)):
        return found
    if model.hidden_dim is not None and "hidden_dim" in read:
        found = {"expansion": default, "hidden_multiple": None}
        if model.hidden_dim == hidden_width(model.emb_dim, default):
            found["hidden_dim"] = None
    elif model.hidden_multiple is not None:
        plain = hidden_width(model.emb_dim, model.expansion)
        if plain % model.hidden_multiple == 0:
            found["hidden_multiple"] = None
    if model.head_dim is not None and model.head_dim * model.n_heads == model.emb_dim:
        found["head_dim"] = None
    return found


def _first_name(key: str, value: Any) -> Any:
    """Of a component registered under several names, the first one. Only a slot's value is such a name."""
    known = registry.components(_SLOT_OF[key]) if key in _SLOT_OF else {}
    if not isinstance(value, str) or value not in known:
        return value
    return next(name for name, part in known.items() if part.factory is known[value].factory)


def _settle_layers(model: ModelConfig, options: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """`model.layers` without the options that its blocks have anyway, from the model or by default."""
    settled: dict[str, Any] = {}
    for span, given in model.layers.items():
        kept = dict(given)
        for layer in layers_of(span, model.n_layers)[:1] if "options" in given else ():
            parts = block_parts(layer_config(model, layer))
            kept["options"] = _settle_options(given["options"], parts, options)
        if kept.get("options") != {}:
            settled[span] = kept
        elif len(kept) > 1:
            settled[span] = {key: value for key, value in kept.items() if key != "options"}
    return settled


def _settle_options(
    given: dict[str, dict[str, Any]], parts: Iterable[Component], inherited: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Options in their declared types, without those that would be the same unsaid: `inherited`, or the default."""
    parts = list(parts)
    settled = {slot: dict(values) for slot, values in given.items()}
    for slot, values in given.items():
        above = inherited.get(slot, {})
        for name, value in values.items():
            found = takers(parts, slot, name)
            if found:
                settled[slot] |= found[0].checked_options({name: value})
            unsaid = [option.default for part in found for option in part.options if option.name == name]
            unsaid = [above[name]] if name in above else unsaid
            if unsaid and all(_same(settled[slot][name], other) for other in unsaid):
                del settled[slot][name]
    return {slot: kept for slot, kept in settled.items() if kept or not given[slot]}


def _same(one: Any, other: Any) -> bool:
    """Equal, and of one type: True is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
