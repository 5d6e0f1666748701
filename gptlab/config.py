"""The root schema: every key that a user can set, its type, its default and its legal range.

Plain dataclasses, no torch and no Hydra. YAML and command-line values are merged into these types, so a wrong key or a
wrong type never gets past this file. What one key means for another is checked in `gptlab.validation`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gptlab.errors import ConfigError, unknown

SCHEMA_VERSION = 1

ARCHITECTURES = ("gpt", "deep_mlp")
NORM_PLACEMENTS = ("pre", "post", "sandwich", "peri", "out", "lns", "deepnorm", "none")
LAYOUTS = ("serial", "parallel", "attention_only", "feed_forward_only")
EMBEDDING_SCALES = ("none", "sqrt_dim")
RNG_MODES = ("paired", "global")
TOKENIZERS = ("auto", "gpt2", "byte", "char", "ids")
DATA_SOURCES = ("python_docs", "file", "string", "random_tokens", "vectors")

# Keys that cannot change a result: they stay out of a run's identity. One list, on purpose.
NOT_IDENTITY = ("label", "output_dir", "add_baseline", "experiment")


def _key(default: Any, **rules: Any) -> Any:
    """A dataclass field with its rules (`choices`, `low`, `high`, `above`) as metadata."""
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: type(default)(default), metadata=rules)
    return field(default=default, metadata=rules)


@dataclass
class ModelConfig:
    """One GPT, declared. The first seven keys and their values are the book's GPT_CONFIG_124M."""

    vocab_size: int = _key(50257, low=1)
    context_length: int = _key(1024, low=1)
    emb_dim: int = _key(768, low=1)
    n_heads: int = _key(12, low=1)
    n_layers: int = _key(12, low=0)
    drop_rate: float = _key(0.1, low=0.0, high=1.0)
    qkv_bias: bool = False

    architecture: str = _key("gpt", choices=ARCHITECTURES)
    norm: str = "layernorm"
    norm_placement: str = _key("pre", choices=NORM_PLACEMENTS)
    activation: str = "gelu_tanh"
    feed_forward: str = "mlp"
    expansion: float = _key(4.0, above=0.0)
    attention: str = "multi_head"
    causal: bool = True
    position: str = "learned"
    n_kv_heads: int | None = _key(None, low=1)  # None: as n_heads
    attention_bias: bool = True  # of attention's output projection
    feed_forward_bias: bool = True
    layout: str = _key("serial", choices=LAYOUTS)
    embedding_scale: str = _key("none", choices=EMBEDDING_SCALES)
    shortcut: str = "add"
    shortcut_attention: str | None = None  # None: as `shortcut`
    shortcut_feed_forward: str | None = None  # None: as `shortcut`
    tie_weights: bool = False
    init: str = "torch"

    drop_embedding: float | None = _key(None, low=0.0, high=1.0)  # None: as `drop_rate`, for all three sites
    drop_attention: float | None = _key(None, low=0.0, high=1.0)
    drop_shortcut: float | None = _key(None, low=0.0, high=1.0)

    drop_feed_forward: float | None = _key(None, low=0.0, high=1.0)  # None: 0, as in the book

    layer_sizes: list[int] | None = _key(None, low=1)  # deep_mlp only
    options: dict[str, dict[str, Any]] = _key({})  # options.<slot>: a component's own arguments
    layers: Any = _key({})  # layers.<n> or <from-to>: keys of those blocks alone


@dataclass
class DataConfig:
    """Where the tokens (or, for `vectors`, the numbers) come from."""

    source: str = _key("python_docs", choices=DATA_SOURCES)
    tokenizer: str = _key("auto", choices=TOKENIZERS)
    prompt: str = ""
    path: str | None = None  # file
    text: str | None = None  # string
    inputs: list[list[float]] | None = None  # vectors
    targets: list[list[float]] | None = None  # vectors


@dataclass
class ParametersProbe:
    """Count parameters, bytes and FLOPs on the meta device."""

    context: int | None = _key(None, low=1)  # None: model.context_length. FLOPs per token grow with it


@dataclass
class ShapesProbe:
    """Trace every intermediate shape, with bytes, on the meta device."""

    batch_size: int = _key(2, low=1)
    context: int | None = _key(None, low=1)  # None: 4, or model.context_length where that is shorter


@dataclass
class GradientsProbe:
    """Loss and gradients of one batch. Dropout is off unless asked for."""

    batch_size: int = _key(2, low=1)
    context: int | None = _key(None, low=1)  # None: 64, or model.context_length where that is shorter
    dropout: bool = False
    split: bool = True  # how much of the gradient comes through the shortcut, how much through the branch
    paths: bool = False  # how much comes through 0, 1, 2, ... branches: for models with few of them


@dataclass
class ActivationsProbe:
    """Sizes along the stream, attention entropy, dead units, effective rank, logits, of one batch in eval mode."""

    batch_size: int = _key(2, low=1)
    context: int | None = _key(None, low=1)  # None: 64, or model.context_length where that is shorter


@dataclass
class GenerationProbe:
    """Greedy continuation of a prompt."""

    prompt: str = "${data.prompt}"
    max_new_tokens: int = _key(10, low=1)


@dataclass
class ProbesConfig:
    """Which measurements are made; `null` leaves one out."""

    parameters: ParametersProbe | None = field(default_factory=ParametersProbe)
    shapes: ShapesProbe | None = field(default_factory=ShapesProbe)
    gradients: GradientsProbe | None = field(default_factory=GradientsProbe)
    activations: ActivationsProbe | None = field(default_factory=ActivationsProbe)
    generation: GenerationProbe | None = field(default_factory=GenerationProbe)


@dataclass
class ExperimentConfig:
    """What is asked, and against what the answer is measured."""

    name: str = "runs"
    question: str = ""
    baseline: str = "none"
    primary_metric: str = "loss"
    analysis: str | None = None  # what is computed beyond the runs: gptlab.analyses
    options: dict[str, Any] = _key({})  # its arguments


@dataclass
class Config:
    """Everything that one run needs."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    probes: ProbesConfig = field(default_factory=ProbesConfig)
    experiment: ExperimentConfig = field(default_factory=ExperimentConfig)
    seed: int = _key(123, low=0, high=2**63 - 1)
    rng: str = _key("paired", choices=RNG_MODES)
    plugins: list[str] = _key([])
    output_dir: str = "outputs"
    label: str = ""  # how tables call this variant; filled from the overrides
    add_baseline: bool = True


def flatten(node: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted key -> leaf value, for a dataclass or nested dict. Lists are leaves."""
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        node = {f.name: getattr(node, f.name) for f in dataclasses.fields(node)}
    if not isinstance(node, dict) or (prefix and not node):
        return {prefix: node} if prefix else {}
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat |= flatten(value, f"{prefix}.{key}" if prefix else str(key))
    return flat


def delta(baseline: Config, variant: Config) -> dict[str, tuple[Any, Any]]:
    """What a variant changed: dotted key -> (value in the baseline, value in the variant). Identity keys only."""
    old, new = _identity_keys(baseline), _identity_keys(variant)
    keys = [*new, *(k for k in old if k not in new)]
    return {k: (old.get(k), new.get(k)) for k in keys if (k in old, old.get(k)) != (k in new, new.get(k))}


def identity(config: Config) -> str:
    """SHA-256 (hex) of all that can change a result, with the schema version. Equal hash: equal run."""
    keys = {"schema_version": SCHEMA_VERSION, **_identity_keys(config)}
    return hashlib.sha256(json.dumps(keys, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _identity_keys(config: Config) -> dict[str, Any]:
    flat = flatten(config)
    # An empty options node and a missing one are the same declaration.
    return {k: v for k, v in flat.items() if k.split(".")[0] not in NOT_IDENTITY and v != {}}


def check_fields(node: Any, path: str = "") -> None:
    """Raise ConfigError for the first value outside its key's own range or list of choices."""
    for where, value, rules in _ruled_values(node, path):
        if "choices" in rules and value not in rules["choices"]:
            raise unknown(where, value, rules["choices"])
        numbers = value if isinstance(value, list) else [value]
        if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
            raise ConfigError(f"{where}={value}: must be a finite number.")
        low, high, above = rules.get("low"), rules.get("high"), rules.get("above")
        if low is not None and value < low or high is not None and value > high or above is not None and value <= above:
            raise ConfigError(f"{where}={value}: must be {_range_words(low, high, above)}.")


def _ruled_values(node: Any, path: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    for f in dataclasses.fields(node):
        where, value = f"{path}.{f.name}" if path else f.name, getattr(node, f.name)
        if dataclasses.is_dataclass(value):
            yield from _ruled_values(value, where)
        elif isinstance(value, list):
            yield from ((f"{where}[{i}]", item, dict(f.metadata)) for i, item in enumerate(value))
        elif isinstance(value, dict):
            yield from ((key, item, {}) for key, item in flatten(value, where).items())
        elif value is not None:
            yield where, value, dict(f.metadata)


def _range_words(low: Any, high: Any, above: Any) -> str:
    if above is not None:
        return f"above {above:g}"
    if high is None:
        return f"{low:g} or more"
    return f"between {low} and {high}"
