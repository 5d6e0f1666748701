"""Which components a model config chooses and which of its keys they read: what is not read must not be set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gptlab import registry
from gptlab.config import DEEP_MLP_KEYS, ModelConfig
from gptlab.errors import ConfigError
from gptlab.model.block import PLACEMENTS
from gptlab.model.per_layer import layer_config
from gptlab.model.slots import inner_parts

# Read by the frame of the model itself, whatever fills its slots. The sizes count as read even where a component
# ignores them (n_heads without attention): they are the size of the whole, and presets set them for every variant.
_SIZES = frozenset({"vocab_size", "context_length", "emb_dim", "n_heads", "n_layers"})
_GPT_FRAME = _SIZES | {"architecture", "position", "init", "norm_placement", "tie_weights", "drop_embedding"}
_GPT_FRAME |= {"embedding_scale", "embedding_multiplier", "head", "layers", "pattern", "after_step"}
_GPT_FRAME |= {"weights", "weights_sha256"}
# Keys that only a block reads, each with the branch that it belongs to.
ATTENTION_KEYS = frozenset({"attention", "shortcut_attention"})
FEED_FORWARD_KEYS = frozenset({"feed_forward", "shortcut_feed_forward"})
_SITES = frozenset({"drop_embedding", "drop_attention", "drop_shortcut"})
# With a norm that does nothing, only these placements still do something.
_PLACED_BY_SCALE = ("lns", "deepnorm", "none")


def blocks(model: ModelConfig) -> list[ModelConfig]:
    """The configs of the blocks, equal ones once."""
    if not isinstance(model.layers, dict):
        raise ConfigError(
            f"model.layers={model.layers!r}: must say what of which layers: model.layers.0.norm=identity, or in a file "
            "layers: {0: {norm: identity}}.",
            code="layers-not-said",
            key="model.layers",
            value=model.layers,
            suggestion="model.layers.0.norm=identity",
        )
    if not model.layers:
        return [model] if model.n_layers else []
    found: list[ModelConfig] = []
    for layer in range(model.n_layers):
        block = layer_config(model, layer)
        if block not in found:
            found.append(block)
    return found


def chosen(model: ModelConfig) -> list[registry.Component]:
    """The components that this model is built from. ConfigError for a name that is not registered."""
    if model.architecture == "deep_mlp":
        return [registry.get(slot, getattr(model, slot)) for slot in ("activation", "shortcut", "init")]
    parts = [registry.get(slot, getattr(model, slot)) for slot in ("position", "head", "init")]
    place = PLACEMENTS[model.norm_placement]
    if place.final or place.embedding:
        parts.append(registry.get("norm", model.norm))
    for block in blocks(model):
        parts += [part for part in block_parts(block) if part not in parts]
    return parts


def block_parts(block: ModelConfig) -> list[registry.Component]:
    """The components of one block, itself and those that they ask for or build inside included."""
    layout = registry.get("block", block.layout)
    parts = [layout]
    for name in layout.inputs:
        if name in registry.SHORTCUTS:
            where = name if getattr(block, name) else "shortcut"
            parts.append(registry.get("shortcut", getattr(block, where), where=f"model.{where}"))
        elif name in registry.SLOTS and (name != "norm" or _has_norms(block)):
            parts.append(registry.get(name, getattr(block, name)))
    wanted = {name for part in parts[1:] for name in part.inputs} & registry.SLOTS.keys()
    parts += [registry.get(slot, getattr(block, slot)) for slot in sorted(wanted)]
    inside = [inner for part in parts for inner in inner_parts(part, block.options.get(part.kind, {}))]
    return parts + [part for part in inside if part not in parts]


def _has_norms(block: ModelConfig) -> bool:
    """Whether the placement leaves a norm within the block."""
    place = PLACEMENTS[block.norm_placement]
    return place.before or place.output or place.after


def takers(parts: Iterable[registry.Component], slot: str, option: str) -> list[registry.Component]:
    """The parts that an option of a slot reaches: with two kinds of shortcut, it may be one of them or both."""
    return [part for part in parts if part.kind == slot and any(known.name == option for known in part.options)]


def keys_read(model: ModelConfig) -> frozenset[str]:
    """The model keys that the frame or a chosen component reads; setting any other key changes nothing."""
    if model.architecture == "deep_mlp":
        return DEEP_MLP_KEYS
    keys = set(_GPT_FRAME).union(
        {"loops"} if model.n_layers else (), *(block_keys_read(block) for block in blocks(model))
    )
    frame = ("position", "head", "init", "norm")
    keys |= {name for part in chosen(model) for name in part.inputs if part.kind in frame}
    if PLACEMENTS[model.norm_placement].final or PLACEMENTS[model.norm_placement].embedding:
        keys |= {"norm"}
    if model.norm == "identity" and model.norm_placement not in _PLACED_BY_SCALE:
        keys -= {"norm_placement"}
    if model.drop_embedding is None:
        keys |= {"drop_rate"}
    return frozenset(keys)


def block_keys_read(block: ModelConfig) -> frozenset[str]:
    """The keys that one block reads."""
    layout = registry.get("block", block.layout)
    parts = block_parts(block)
    keys = {"layout", "norm_placement", "options"}.union(*(part.inputs for part in parts))
    if not _has_norms(block) and not any("norm" in part.inputs for part in parts if part.kind != "block"):
        keys -= {"norm"}
    if any(getattr(block, name) is None for name in set(registry.SHORTCUTS) & set(layout.inputs)):
        keys |= {"shortcut"}
    if any(getattr(block, site) is None for site in (_SITES - {"drop_embedding"}) & keys):
        keys |= {"drop_rate"}
    return frozenset(keys - _overruled(block))


def _overruled(block: ModelConfig) -> frozenset[str]:
    """The keys of sizes that `hidden_dim` takes the place of."""
    return frozenset({"expansion", "hidden_multiple"} if block.hidden_dim is not None else ())


class Unread(NamedTuple):
    """Why no part of a model reads a key: as a word, as the end of a sentence, and which parts would read it."""

    cause: str
    words: str
    readers: tuple[str, ...] = ()  # as in `attention=multi_head`


def why_unread(model: ModelConfig, name: str) -> Unread:
    """Why no part of the model reads the key `name`."""
    if model.architecture == "deep_mlp":
        return Unread("architecture", f"architecture=deep_mlp reads only {', '.join(sorted(DEEP_MLP_KEYS))}")
    if name == "norm":
        return Unread("norm-placement", f"norm_placement={model.norm_placement} leaves every norm out")
    if name == "norm_placement":
        return Unread("norm", "norm=identity does nothing wherever it stands")
    if model.n_layers == 0 and name not in ("drop_rate", "layer_sizes"):
        return Unread("no-block", "n_layers=0 leaves no block")
    if name in ATTENTION_KEYS | FEED_FORWARD_KEYS:
        return Unread("layout", f"layout={model.layout} leaves that branch out")
    if name == "shortcut":
        return Unread("own-shortcuts", "shortcut_attention and shortcut_feed_forward are both set")
    if name == "drop_rate":
        return Unread("own-rates", "every dropout site has its own rate")
    if name in _overruled(model):
        return Unread("hidden-dim", f"hidden_dim={model.hidden_dim} sets the width itself")
    readers = [
        f"{slot}={component.name}"
        for slot in registry.SLOTS
        for component in registry.components(slot).values()
        if name in component.inputs
    ]
    if not readers:
        return Unread("no-reader", "nothing in this model reads it")
    shown = readers if len(readers) <= 8 else [*readers[:8], "..."]
    return Unread("other-parts", f"only {', '.join(shown)} would read it", tuple(readers))


def instead(model: ModelConfig, name: str, value: object) -> str:
    """The line that says to this architecture what the key `name` would say to another; empty where there is none."""
    if model.architecture != "deep_mlp":
        return "model=deep_mlp" if name == "layer_sizes" else ""
    sizes = model.layer_sizes or [1, 1]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        return ""
    if name == "n_layers":
        sizes = [sizes[0]] * value + [sizes[-1]]
    elif name in ("emb_dim", "hidden_dim"):
        sizes = [sizes[0], *[value] * (len(sizes) - 2), sizes[-1]]
    else:
        return ""
    return f"model.layer_sizes=[{','.join(map(str, sizes))}]"
