"""The root schema: every key that a user can set, its type, its default and its legal range.

Plain dataclasses, no torch and no Hydra. YAML and command-line values are merged into these types, so a wrong key or a
wrong type never gets past this file. What one key means for another is checked in `gptlab.declare.to_config`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gptlab.errors import ConfigError, unknown, wrong_value

ARCHITECTURES = ("gpt", "deep_mlp")
AFTER_STEP = ("none", "unit_norm")
NORM_PLACEMENTS = ("pre", "post", "sandwich", "peri", "out", "lns", "deepnorm", "none")
EMBEDDING_SCALES = ("none", "sqrt_dim")
RNG_MODES = ("paired", "global")
TOKENIZERS = ("auto", "gpt2", "byte", "char", "ids", "words")
SPLITS = ("position", "document")
PRECISIONS = ("fp32", "bf16")
BUDGET_UNITS = ("steps", "tokens", "flops", "seconds")
TRACKERS = ("none", "tensorboard")

LAUNCHERS = ("local", "submitit", "ray")
ORDERS = ("seeds", "variants")
ON_ERROR = ("continue", "stop")
ON_INVALID = ("refuse", "skip")
RERUN_ON = ("nothing", "code", "data", "any")
ON_CHANGED = ("refuse", "restart", "resume")
MATCHES = ("none", "params", "params_active", "params_body", "flops", "training_flops")

# Of the model's keys, those that an architecture does not read: they stay at their defaults, and out of config.yaml.
DEEP_MLP_KEYS = frozenset({"architecture", "layer_sizes", "activation", "shortcut", "init"})


def unread_by(architecture: str) -> dict[str, Any]:
    """Key of `model` -> default, of the keys that this architecture does not read."""
    defaults = dataclasses.asdict(ModelConfig())
    if architecture == "deep_mlp":
        return {key: value for key, value in defaults.items() if key not in DEEP_MLP_KEYS | {"options"}}
    return {"layer_sizes": defaults["layer_sizes"]}


NEW = {"new": True}


def _key(default: Any, **rules: Any) -> Any:
    """A dataclass field with its rules (`choices`, `low`, `high`, `above`) as metadata.

    `text=True` marks free text: it is taken as it is typed, where other keys hold numbers and names.
    `new=True` marks a key that came after runs had been made: at its default it stays out of the identity, so that
    those runs stay themselves. Such a default never changes; a group (a dataclass) is marked by `field(metadata=NEW)`.
    """
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
    layout: str = "serial"
    embedding_scale: str = _key("none", choices=EMBEDDING_SCALES)
    embedding_multiplier: float = _key(1.0, above=0.0, new=True)  # token embeddings times this, beside embedding_scale
    skip: str = _key("none", new=True)  # what the stream gets back from further down as it enters a block
    loops: int = _key(1, low=1, new=True)  # how often the stream passes all blocks, with the same weights each time
    shortcut: str = "add"
    shortcut_attention: str | None = None  # None: as `shortcut`
    shortcut_feed_forward: str | None = None  # None: as `shortcut`
    tie_weights: bool = False
    head: str = _key("linear", new=True)
    init: str = "torch"
    after_step: str = _key("none", choices=AFTER_STEP, new=True)  # what holds of the weights, at the start and always

    drop_embedding: float | None = _key(None, low=0.0, high=1.0)  # None: as `drop_rate`, for all three sites
    drop_attention: float | None = _key(None, low=0.0, high=1.0)
    drop_shortcut: float | None = _key(None, low=0.0, high=1.0)

    drop_feed_forward: float | None = _key(None, low=0.0, high=1.0)  # None: 0, as in the book

    # Sizes as numbers of their own; None: from the others.
    hidden_dim: int | None = _key(None, low=1, new=True)  # width inside the feed-forward layer: expansion * emb_dim
    hidden_multiple: int | None = _key(None, low=1, new=True)  # expansion * emb_dim goes up to a multiple of this
    head_dim: int | None = _key(None, low=1, new=True)  # emb_dim / n_heads

    layer_sizes: list[int] | None = _key(None, low=1)  # deep_mlp only
    # Weights of a file, which then implies the keys above. The hash is filled in, or pins what the file must hold.
    weights: str | None = _key(None, text=True, new=True)
    weights_sha256: str = _key("", text=True, new=True)

    options: dict[str, dict[str, Any]] = _key({})  # options.<slot>: a component's own arguments
    layers: Any = _key({})  # layers.<n> or <from-to>: keys of those blocks alone
    pattern: Any = _key(
        {}, new=True
    )  # kinds: keys of blocks by a name; order: names, again and again; rest: at the end


@dataclass
class DataConfig:
    """Where the tokens (or, for `vectors`, the numbers) come from."""

    source: str = "python_docs"
    tokenizer: str = _key("auto", choices=TOKENIZERS)
    prompt: str = _key("", text=True)
    path: str | None = _key(None, text=True)  # file, hf
    text: str | None = _key(None, text=True)  # string
    inputs: list[list[float]] | None = None  # vectors
    targets: list[list[float]] | None = None  # vectors
    split: str | None = _key(
        None, choices=SPLITS
    )  # text: how the validation part is held out. None: the kind's default
    validation_fraction: float | None = _key(None, above=0.0, high=0.5)  # text: its share of the tokens
    options: dict[str, Any] = _key({})  # a kind's own arguments


@dataclass
class TrainConfig:
    """How a model is trained, if it is: nothing happens while `budget` is null."""

    budget: float | None = _key(None, above=0.0)
    budget_unit: str = _key("steps", choices=BUDGET_UNITS)
    batch_size: int = _key(16, low=1)  # sequences per optimizer step
    context: int | None = _key(None, low=1)  # tokens per sequence. None: model.context_length
    accumulate: int = _key(1, low=1)  # parts in which a batch is computed, to save memory; the gradient is the same

    optimizer: str = "adamw"
    learning_rate: float = _key(1e-3, above=0.0)  # the peak
    schedule: str = "constant"
    warmup: float = _key(0, low=0)  # steps, or below 1 the share of the run
    final_rate: float = _key(0.0, low=0.0, high=1.0)  # where a falling schedule ends, as a share of the peak
    decay_share: float = _key(0.2, above=0.0, high=1.0)  # wsd: the share of the run in which the rate falls
    weight_decay: float = _key(0.01, low=0.0)
    decay_embeddings: bool = True
    decay_vectors: bool = False  # norms and biases
    beta1: float = _key(0.9, low=0.0, high=1.0)
    beta2: float = _key(0.999, low=0.0, high=1.0)
    eps: float = _key(1e-8, above=0.0)
    momentum: float = _key(0.95, low=0.0, high=1.0)  # sgd, muon
    clip: float | None = _key(1.0, above=0.0)  # largest norm of the whole gradient. None: not clipped

    precision: str = _key("fp32", choices=PRECISIONS)
    compile: bool = False
    kernels: Any = _key("auto")  # `auto` (measured once for a study), `reference`, or a name for each place
    deterministic: bool = False
    device: str = "auto"  # auto: cuda where there is one, else cpu

    evaluate_every: int = _key(100, low=1)  # moved: evaluation.every
    evaluation_batches: int = _key(8, low=1)  # moved: evaluation.tokens
    average_last: int = _key(1, low=1)  # final_loss is the mean of the last so many evaluations
    log_every: float = _key(10, above=0)  # steps, or below 1 the share of the run
    probe_every: int | None = _key(None, low=1)  # gradients, updates, generated text. None: not during training
    checkpoint_every: int | None = _key(None, low=1)  # steps. None: once a minute. The end always has one
    keep_checkpoints: int = _key(1, low=0)  # the newest so many; 0 leaves none behind
    options: dict[str, dict[str, Any]] = _key({})  # options.optimizer, options.schedule: their own arguments


@dataclass
class EvaluationConfig:
    """What scores a model in training: the same rows for every variant and seed, from the data alone."""

    tokens: int = _key(8192, low=1)  # targets that each evaluation scores, as far as the held-out part has them
    context: int | None = _key(None, low=1)  # tokens that a row may look back over. None: train.context
    every: float = _key(100, above=0)  # steps, or below 1 the share of the run; start and end are always evaluated
    final: bool = True  # at the end, one pass over the whole held-out part
    final_tokens: int = _key(131072, low=1)  # as far as this many targets


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
    """Continuation of a prompt: greedy, or sampled where there is a temperature."""

    prompt: str = _key("${data.prompt}", text=True)
    max_new_tokens: int = _key(10, low=1)
    temperature: float = _key(0.0, low=0.0, new=True)  # logits are divided by it. 0: the most likely token, always
    top_k: int | None = _key(None, low=1, new=True)  # sampled from the k most likely
    top_p: float | None = _key(None, above=0.0, high=1.0, new=True)  # from the fewest that have this much together
    min_p: float | None = _key(None, above=0.0, high=1.0, new=True)  # from those with this share of the largest
    repetition_penalty: float = _key(1.0, above=0.0, new=True)  # on logits of tokens that have been: CTRL's
    stop: list[str] = _key([], new=True)  # texts that end it


@dataclass
class ProbesConfig:
    """Which measurements are made; `null` leaves one out. A plugin's probe is one key more: see `with_probes`."""

    parameters: ParametersProbe | None = field(default_factory=ParametersProbe)
    shapes: ShapesProbe | None = field(default_factory=ShapesProbe)
    gradients: GradientsProbe | None = field(default_factory=GradientsProbe)
    activations: ActivationsProbe | None = field(default_factory=ActivationsProbe)
    generation: GenerationProbe | None = field(default_factory=GenerationProbe)


def with_probes(options: Mapping[str, type]) -> type[ProbesConfig]:
    """ProbesConfig with probes of plugins: name -> dataclass of its options. They are on, at their defaults."""
    if not options:
        return ProbesConfig
    fields = [(name, schema, field(default_factory=schema)) for name, schema in options.items()]
    return dataclasses.make_dataclass("ProbesConfig", fields, bases=(ProbesConfig,))


@dataclass
class ExperimentConfig:
    """What is asked, and against what the answer is measured."""

    name: str = _key("runs", text=True)
    question: str = _key("", text=True)
    baseline: str = _key("none", text=True)
    primary_metric: str | None = None  # None: final_loss of what is trained, else loss
    margin: str = ""  # a difference in it that does not matter, fixed before the runs: 0.01, 1%; empty for none
    labels: dict[str, str] = _key({}, text=True)  # label of a variant -> what tables and figures call it
    analysis: str | None = None  # what is computed beyond the runs: gptlab.analyses
    options: dict[str, Any] = _key({})  # its arguments


@dataclass
class MatchConfig:
    """One free key, solved when planned so that a variant costs what its baseline costs. The baseline never moves.

    What runs has it solved, and `cost: none` here: the solved value is an ordinary one. See `planning/matching.py`.
    """

    cost: str = _key("none", choices=MATCHES)  # what is made equal to the baseline's
    by: str | None = None  # the key that is solved. None: model.hidden_dim, and train.budget for training_flops
    tolerance: float = _key(1.0, above=0.0, high=50.0)  # percent of the baseline's cost


@dataclass
class TuneConfig:
    """A key that every arm gets its own best value of, from equal trials on seeds of their own.

    What runs has it chosen, and no `keys` here: the value is an ordinary one. See `planning/tuning.py`.
    """

    keys: list[str] = _key([])  # of train, numbers above 0; empty: nothing is tuned
    factor: float = _key(2.0, above=1.0)  # between neighbours on the grid, whose middle is the arm's own value
    points: int = _key(5, low=5)  # values that each arm tries at first
    seeds: list[int] = _key([901, 902], low=0)  # each value is tried on all of them, and none of them decides
    max_trials: int = _key(9, low=5)  # most values of an arm, where a best one lay at the edge of its grid


@dataclass
class Config:
    """Everything that one run needs."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig, metadata=NEW)
    probes: ProbesConfig = field(default_factory=ProbesConfig)
    experiment: ExperimentConfig = field(default_factory=ExperimentConfig)
    match: MatchConfig = field(default_factory=MatchConfig, metadata=NEW)
    tune: TuneConfig = field(default_factory=TuneConfig, metadata=NEW)
    seed: int = _key(123, low=0, high=2**63 - 1)
    rng: str = _key("paired", choices=RNG_MODES)
    plugins: list[str] = _key([])
    tracker: str = _key("none", choices=TRACKERS)  # beside metrics.jsonl, which is always written
    output_dir: str = _key("outputs", text=True)
    label: str = _key("", text=True)  # how tables call this variant; filled from the overrides
    add_baseline: bool = True
    workers: int = _key(1, low=1)  # how many runs go side by side, each in a process of its own
    threads: int = _key(1, low=1)  # of one run, whatever `workers` is: sums come out the same bit for bit
    launcher: str = _key("local", choices=LAUNCHERS)
    launcher_options: dict[str, Any] = _key({})  # for submitit or ray: docs/clusters.md
    order: str = _key("seeds", choices=ORDERS)  # seeds: all variants with the first seed, then with the second
    on_error: str = _key("continue", choices=ON_ERROR)  # after a run that failed
    on_invalid: str = _key("refuse", choices=ON_INVALID)  # a member of a sweep that cannot be built
    retry_failed: bool = False  # run again what failed or is damaged
    rerun_on: str = _key("nothing", choices=RERUN_ON)  # run again what finished with other code or other data
    on_changed: str = _key("refuse", choices=ON_CHANGED)  # for what was broken off, and had other code or other data


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


def stored(config: Config) -> dict[str, Any]:
    """The config as config.yaml holds it: a nested dict without the keys that its architecture does not read."""
    plain = dataclasses.asdict(config)
    unread = unread_by(config.model.architecture)
    plain["model"] = {key: value for key, value in plain["model"].items() if key not in unread}
    return plain


def check_fields(node: Any, path: str = "") -> None:
    """Raise ConfigError for the first value outside its key's own range or list of choices."""
    for where, value, rules in _ruled_values(node, path):
        error = _against_rules(where, value, rules)
        if error:
            raise error


def _against_rules(where: str, value: Any, rules: dict[str, Any]) -> ConfigError | None:
    if "choices" in rules and value not in rules["choices"]:
        return unknown(where, value, rules["choices"])
    numbers = value if isinstance(value, list) else [value]
    if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        return wrong_value(where, value, "must be a finite number.", code="not-finite")
    low, high, above = rules.get("low"), rules.get("high"), rules.get("above")
    if low is not None and value < low or high is not None and value > high or above is not None and value <= above:
        said = _range_words(low, high, above)
        return wrong_value(where, value, f"must be {said}.", code="out-of-range", low=low, high=high, above=above)
    return None


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
        return f"above {above:g}" + (f", at most {high:g}" if high is not None else "")
    if high is None:
        return f"{low:g} or more"
    return f"between {low} and {high}"
