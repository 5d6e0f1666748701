"""Different settings for different blocks: `model.layers: {0: {norm: identity}, "6-11": {activation: relu}}`."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import replace
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gptlab.config import ModelConfig, check_fields
from gptlab.errors import ConfigError
from gptlab.values import misfits, unknown_key

# What a block decides for itself. Sizes, embeddings and init belong to the whole model; of positions, a block has those
# that act inside its attention.
BLOCK_KEYS = (
    "norm", "norm_placement", "layout", "activation", "feed_forward", "expansion", "hidden_dim",
    "skip", "hidden_multiple", "feed_forward_bias", "attention", "position",
    "causal", "n_heads", "n_kv_heads", "head_dim", "qkv_bias", "attention_bias", "shortcut", "shortcut_attention",
    "shortcut_feed_forward", "drop_rate", "drop_attention", "drop_shortcut", "drop_feed_forward", "options",
)  # fmt: skip
_SPAN = re.compile(r"(\d+)(?:-(\d+))?")


def layers_of(span: Any, n_layers: int) -> range:
    """The blocks that a key of `model.layers` names: `3` or `"6-11"`, both ends included."""
    where = f"model.layers.{span}"
    match = _SPAN.fullmatch(str(span))
    if not match:
        raise ConfigError(f"{where}: a layer is a number, or a span like 6-11.", code="layer-span", where=where)
    first, last = int(match[1]), int(match[2] or match[1])
    if first > last:
        raise ConfigError(
            f"{where}: the span runs backwards. Write {last}-{first}.",
            code="layer-span-backwards",
            where=where,
            last=last,
            first=first,
        )
    if last >= n_layers:
        raise ConfigError(
            f"{where}: model.n_layers={n_layers}, so the layers are 0 to {n_layers - 1}.",
            code="layer-out-of-range",
            where=where,
            n_layers=n_layers,
        )
    return range(first, last + 1)


def layer_config(config: ModelConfig, layer: int) -> ModelConfig:
    """The config of one block: the model's, with what `model.layers` says of it. ConfigError where that is wrong.

    A `model.pattern` has been written out as layers before (`gptlab.model.pattern`).
    """
    changes: dict[str, Any] = {}
    options = {slot: dict(given) for slot, given in config.options.items()}
    origin: dict[str, str] = {}
    for span, settings in config.layers.items():
        if layer not in layers_of(span, config.n_layers):
            continue
        where = f"model.layers.{span}"
        for key, value in checked_settings(settings, where).items():
            if key in origin:
                raise ConfigError(
                    f"{where}.{key}: layer {layer} has it from model.layers.{origin[key]} already.",
                    code="layer-set-twice",
                    where=where,
                    layer=layer,
                )
            origin[key] = str(span)
            if key != "options":
                changes[key] = value
            for slot, given in value.items() if key == "options" else ():
                options[slot] = {**options.get(slot, {}), **given}
    return replace(config, **changes, options=options, layers={})


def checked_settings(settings: Any, where: str) -> dict[str, Any]:
    """The settings of one span, in their declared types. ConfigError for a key that no block has."""
    if not isinstance(settings, dict):
        raise ConfigError(
            f"{where}={settings!r}: must hold keys of a block, as in {{norm: identity}}.",
            code="layer-holds-no-keys",
            key=where,
            value=settings,
        )
    for key in settings:
        if key not in BLOCK_KEYS:
            if key in {f.name for f in dataclasses.fields(ModelConfig)}:
                raise ConfigError(
                    f"{where}.{key}: belongs to the whole model. Allowed: {', '.join(BLOCK_KEYS)}.",
                    code="layer-key-of-model",
                    where=where,
                )
            raise unknown_key(where, str(key), BLOCK_KEYS)
    try:
        typed = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(ModelConfig), settings))
    except OmegaConfBaseException as error:
        raise next(
            misfits(settings, ModelConfig, where),
            ConfigError(f"{where}: cannot be used.", code="layer-cannot-be-used", where=where),
        ) from error
    check_fields(typed, where)
    return {key: getattr(typed, key) for key in settings}
