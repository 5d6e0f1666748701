"""What a model must not be: pairs that contradict each other, names and options that are not there, unread keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gptlab import registry
from gptlab.config import Config, ModelConfig
from gptlab.declare.keys_read import (
    block_keys_read,
    block_parts,
    blocks,
    chosen,
    instead,
    keys_read,
    takers,
    why_unread,
)
from gptlab.declare.measurement_checks import why_not_probed
from gptlab.errors import ConfigError, unknown, wrong_value
from gptlab.model import skeleton
from gptlab.model.per_layer import layer_config, layers_of
from gptlab.model.slots import Parts, acts_in_attention
from gptlab.values import say


def check_model(model: ModelConfig) -> None:
    """ConfigError for the first thing of a settled model that cannot be."""
    (_check_gpt if model.architecture == "gpt" else _check_deep_mlp)(model)


def _check_gpt(model: ModelConfig) -> None:
    for slot in registry.SLOTS:  # a wrong name is an error even where the slot is not used
        registry.get(slot, getattr(model, registry.key_of(slot)))
    if model.layer_sizes is not None:
        raise ConfigError(
            "model.layer_sizes: only architecture=deep_mlp reads it.",
            code="layer-sizes-unread",
            key="model.layer_sizes",
        )
    if model.weights_sha256 and not model.weights:
        raise ConfigError(
            "model.weights_sha256: pins what the file of model.weights holds, and no file is named.",
            code="weights-hash-alone",
            key="model.weights_sha256",
        )
    _check_layers(model)
    for block in blocks(model):
        _check_heads(block)
        _check_block(block)
    _check_positions(model)
    _check_options(model.options, chosen(model), "model.options")
    _check_construction(model)


def _check_positions(model: ModelConfig) -> None:
    """A position that acts inside attention finds one there; that of a layer acts nowhere else."""
    inside = acts_in_attention(registry.get("position", model.position))
    own = [block for block in blocks(model) if block.position == model.position]
    if inside and not any("position" in part.inputs for block in own for part in block_parts(block)):
        raise wrong_value(
            "model.position",
            model.position,
            "acts inside attention, and no attention of this model takes a position. "
            "Use position=none, which comes to the same.",
            code="position-without-attention",
        )
    for block in blocks(model):
        if block.position == model.position or acts_in_attention(registry.get("position", block.position)):
            continue
        if block.position != "none" or not inside:
            what = "leaves out nothing here" if block.position == "none" else "acts on the embeddings of all layers"
            raise ConfigError(
                f"model.layers: position={block.position} {what}, where model.position={model.position}. A layer's own "
                "position acts inside its attention (rope, alibi), or is none where the model's does.",
                code="layer-position",
                key="model.layers",
                value=block.position,
            )


def _check_layers(model: ModelConfig) -> None:
    """`model.layers` names blocks that exist, keys that those blocks read, and options that they have."""
    for span, settings in model.layers.items():
        for layer in layers_of(span, model.n_layers):
            block = layer_config(model, layer)
            for key in settings:
                if key not in block_keys_read(block):
                    why = why_unread(block, key).words
                    raise ConfigError(
                        f"model.layers.{span}.{key}: would be ignored, because {why}.",
                        code="layer-key-ignored",
                        span=span,
                    )
            given = settings.get("options", {})
            _check_options(given, block_parts(block), f"model.layers.{span}.options")


def _check_heads(block: ModelConfig) -> None:
    if not any("n_heads" in part.inputs for part in block_parts(block)):
        return
    if block.head_dim is None and block.emb_dim % block.n_heads:
        near = _closest_divisor(block.emb_dim, block.n_heads)
        raise wrong_value(
            "model.n_heads",
            block.n_heads,
            f"model.emb_dim={block.emb_dim} is not divisible by it. "
            f"Allowed: divisors of {block.emb_dim}; the closest is {near}.",
            code="heads-divide",
            emb_dim=block.emb_dim,
            suggestion=near,
        )
    shared = block.n_kv_heads
    if shared and block.n_heads % shared:
        near = _closest_divisor(block.n_heads, shared)
        raise wrong_value(
            "model.n_kv_heads",
            shared,
            f"model.n_heads={block.n_heads} is not divisible by it. "
            f"Allowed: divisors of {block.n_heads}; the closest is {near}.",
            code="kv-heads-divide",
            n_heads=block.n_heads,
            suggestion=near,
        )


def _check_block(block: ModelConfig) -> None:
    """Pairs that contradict each other, or of which one would undo the other."""
    placement = f"model.norm_placement={block.norm_placement}"
    kinds = {block.shortcut_attention or block.shortcut, block.shortcut_feed_forward or block.shortcut}
    if block.norm_placement in ("post", "deepnorm") and "rezero" in kinds:
        raise ConfigError(
            f"{placement} with model.shortcut=rezero: ReZero takes the place of a norm after the shortcut, which would "
            "undo its start. Use norm_placement=none or pre.",
            code="rezero-after-norm",
            placement=placement,
        )
    if block.norm_placement == "deepnorm" and kinds != {"add"}:
        raise ConfigError(
            f"{placement} with model.shortcut={min(kinds - {'add'})}: DeepNorm weighs the shortcut itself.",
            code="deepnorm-shortcut",
            placement=placement,
        )
    if block.layout in ("parallel", "parallel_two_norms") and "none" in kinds:
        raise ConfigError(
            f"model.layout={block.layout} with model.shortcut=none: the second branch would replace the first one.",
            code="parallel-without-shortcut",
        )


def _check_construction(model: ModelConfig) -> None:
    """Let every component see its arguments: what it refuses comes up now, not in the middle of a sweep.

    Only gptlab's own: whatever a plugin's constructor does, it does it to its run and not to the plan.
    """
    if all(part.module.startswith("gptlab.") for part in chosen(model)):
        skeleton(model)
        Parts(model)("init")


def _check_deep_mlp(model: ModelConfig) -> None:
    if model.layer_sizes is None or len(model.layer_sizes) < 2:
        raise ConfigError(
            "model.layer_sizes: architecture=deep_mlp needs at least an input and an output size.",
            code="layer-sizes-too-short",
            key="model.layer_sizes",
        )
    _check_options(model.options, chosen(model), "model.options")


def _check_options(options: Any, parts: Iterable[registry.Component], where: str) -> None:
    for slot, given in options.items():
        if slot not in registry.SLOTS:
            raise unknown(where, slot, registry.SLOTS)
        used = [part for part in parts if part.kind == slot]
        if not used:
            raise ConfigError(
                f"{where}.{slot}: this model has no {slot}, so the options would be ignored.",
                code="options-of-absent-slot",
                where=where,
                slot=slot,
            )
        for name, value in given.items():
            for part in takers(parts, slot, name) or used[:1]:
                part.checked_options({name: value})


def check_all_read(config: Config, changed: Collection[str], model: ModelConfig) -> None:
    """ConfigError for a key that the user set and nothing would read. `model`: as it was before it was settled."""
    read = keys_read(model)
    for key in sorted(changed):
        section, _, name = key.partition(".")
        why = why_not_probed(config, key)
        if why:
            raise ConfigError(f"{key}: would be ignored, because {why}.", code="model-key-ignored", key=key)
        if section == "model" and name.split(".")[0] not in read | {"options"}:
            value = changed[key] if isinstance(changed, Mapping) else getattr(model, name)
            line, unread = instead(model, name, value), why_unread(model, name)
            said = f"{key}={say(value)}: would be ignored, because {unread.words}."
            said += f" Type {line}" if line else ""
            raise ConfigError(
                said,
                code="model-key-unread",
                key=key,
                value=value,
                cause=unread.cause,
                readers=list(unread.readers),
                command=line or None,
            )


def _closest_divisor(whole: int, wanted: int) -> int:
    return min((n for n in range(1, whole + 1) if whole % n == 0), key=lambda n: (abs(n - wanted), n))
