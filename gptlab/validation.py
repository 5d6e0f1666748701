"""What one key means for another: from a composed config to a `Config` that can run, or one short error.

`settle` writes down what was left open (null, auto), so that the stored config says everything. `check` refuses values
out of range, names that nobody registered, impossible pairs, and keys that nothing would read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from gptlab import config as schema
from gptlab import registry
from gptlab.config import Config, ModelConfig
from gptlab.errors import ConfigError, unknown
from gptlab.training_rules import check_training, settle_training

# Read by the frame of the model itself, whatever fills its slots. The sizes count as read even where a component
# ignores them (n_heads without attention): they are the size of the whole, and presets set them for every variant.
_SIZES = frozenset({"vocab_size", "context_length", "emb_dim", "n_heads", "n_layers"})
_GPT_FRAME = _SIZES | {
    "architecture", "attention", "feed_forward", "position", "init", "norm_placement", "tie_weights",
    "shortcut", "drop_rate", "drop_embedding",
}  # fmt: skip
_BLOCK_FRAME = {"shortcut_attention", "shortcut_feed_forward", "drop_shortcut"}
_DEEP_MLP_FRAME = frozenset({"architecture", "layer_sizes", "activation", "shortcut", "init"})
_BLOCK_SLOTS = frozenset({"attention", "feed_forward", "shortcut"})

# Each stands for one place; left open, the place has the general key's value.
_GENERAL = {
    "shortcut_attention": "shortcut",
    "shortcut_feed_forward": "shortcut",
    "drop_embedding": "drop_rate",
    "drop_attention": "drop_rate",
    "drop_shortcut": "drop_rate",
}


def from_omegaconf(node: Any, changed: Collection[str] = ()) -> Config:
    """A checked `Config` from a composed DictConfig or nested dict. Extra keys, also those behind `+`, are refused."""
    plain = OmegaConf.to_container(node, resolve=False) if isinstance(node, DictConfig) else dict(node)
    assert isinstance(plain, dict)
    plain.pop("hydra", None)
    try:
        merged = OmegaConf.merge(OmegaConf.structured(Config), plain)
        missing = OmegaConf.missing_keys(merged)
        if missing:
            raise ConfigError(f"{min(missing)}: a value is needed.")
        config = OmegaConf.to_object(merged)
    except ConfigKeyError as error:
        raise unknown_key(str(error.full_key or error.key)) from error
    except OmegaConfBaseException as error:
        where = f"{error.full_key}: " if error.full_key else ""
        raise ConfigError(f"{where}{str(error).splitlines()[0]}") from error
    assert isinstance(config, Config)
    schema.check_fields(config)
    registry.load_plugins(config.plugins)
    settled = settle(config)
    check(settled, changed)
    return settled


def unknown_key(full_key: str) -> ConfigError:
    """The error for a key that the schema lacks, with the closest key of the whole schema."""
    *parents, key = full_key.split(".")
    node: Any = Config()
    for parent in parents:
        node = getattr(node, parent, None)
    siblings = [f.name for f in dataclasses.fields(node)] if dataclasses.is_dataclass(node) else []
    return unknown(f"{'.'.join(parents) or 'config'}", key, siblings)


def settle(config: Config) -> Config:
    """A copy with contexts and tokenizer written out where they were left open, and the model in its one spelling."""
    from gptlab.data.check import settle_data

    model, probes = config.model, config.probes

    def context(probe: Any, length: int) -> Any:
        return probe and dataclasses.replace(probe, context=probe.context or min(length, model.context_length))

    probes = dataclasses.replace(
        probes,
        parameters=context(probes.parameters, model.context_length),
        shapes=context(probes.shapes, 4),
        gradients=context(probes.gradients, 64),
    )
    data = settle_data(config.data, model.vocab_size)
    train = settle_training(config.train, model)
    return dataclasses.replace(config, probes=probes, data=data, train=train, model=_settle_model(model))


def _settle_model(model: ModelConfig) -> ModelConfig:
    """One spelling for one model, so that equal models have equal identities.

    What a place has from the general key anyway is left to it; options take their declared types (1 becomes 1.0) and
    are left out where they are at their defaults.
    """
    same = [key for key, general in _GENERAL.items() if getattr(model, key) == getattr(model, general)]
    open_again: dict[str, Any] = dict.fromkeys(same)
    parts, options = chosen(model), {slot: dict(given) for slot, given in model.options.items()}
    for slot, given in model.options.items():
        for name, value in given.items():
            takers = _takers(parts, slot, name)
            if takers:
                options[slot] |= takers[0].checked_options({name: value})
            defaults = [option.default for part in takers for option in part.options if option.name == name]
            if defaults and all(options[slot][name] == default for default in defaults):
                del options[slot][name]
    return dataclasses.replace(model, options={slot: kept for slot, kept in options.items() if kept}, **open_again)


def check(config: Config, changed: Collection[str] = ()) -> None:
    """Raise ConfigError for the first thing that cannot be. `changed`: dotted keys that the user set, presets aside."""
    from gptlab.data.check import check_data

    schema.check_fields(config)
    model = config.model
    (_check_gpt if model.architecture == "gpt" else _check_deep_mlp)(model)
    check_data(config.data, model.vocab_size)
    _check_data_fits(config)
    _check_contexts(config)
    _check_all_read(config, changed)
    check_training(config, changed)
    _check_tokens(config)


def chosen(model: ModelConfig) -> list[registry.Component]:
    """The components that this model is built from. ConfigError for a name that is not registered."""
    if model.architecture == "deep_mlp":
        return [registry.get(slot, getattr(model, slot)) for slot in ("activation", "shortcut", "init")]
    parts = [registry.get(slot, getattr(model, slot)) for slot in ("position", "init")]
    if model.n_layers:
        parts += [registry.get(slot, getattr(model, slot)) for slot in ("attention", "feed_forward")]
        for key in ("shortcut_attention", "shortcut_feed_forward"):
            where = key if getattr(model, key) else "shortcut"
            parts.append(registry.get("shortcut", getattr(model, where), where=f"model.{where}"))
    if _has_norm(model):
        parts.append(registry.get("norm", model.norm))
    for slot in sorted({name for part in parts for name in part.inputs} & registry.SLOTS.keys()):
        parts.append(registry.get(slot, getattr(model, slot)))
    return parts


def _has_norm(model: ModelConfig) -> bool:
    # Without blocks only a final norm is left, and post has none.
    return model.norm_placement != "none" and (model.n_layers > 0 or model.norm_placement != "post")


def _takers(parts: Iterable[registry.Component], slot: str, option: str) -> list[registry.Component]:
    """The parts that an option of a slot reaches: with two kinds of shortcut, it may be one of them or both."""
    return [part for part in parts if part.slot == slot and any(known.name == option for known in part.options)]


def keys_read(model: ModelConfig) -> frozenset[str]:
    """The model keys that the frame or a chosen component reads; setting any other key changes nothing."""
    if model.architecture == "deep_mlp":
        return _DEEP_MLP_FRAME
    keys = set(_GPT_FRAME)
    keys = (keys | _BLOCK_FRAME) if model.n_layers else (keys - _BLOCK_SLOTS)
    if _has_norm(model):
        keys |= {"norm"}
    if model.shortcut_attention and model.shortcut_feed_forward:
        keys -= {"shortcut"}
    keys |= {name for part in chosen(model) for name in part.inputs}
    sites = {"drop_embedding", "drop_attention", "drop_shortcut"} & keys
    if all(getattr(model, site) is not None for site in sites):
        keys -= {"drop_rate"}
    return frozenset(keys)


def _check_gpt(model: ModelConfig) -> None:
    for slot in registry.SLOTS:  # a wrong name is an error even where the slot is not used
        registry.get(slot, getattr(model, slot))
    if model.layer_sizes is not None:
        raise ConfigError("model.layer_sizes: only architecture=deep_mlp reads it.")
    heads = any("n_heads" in part.inputs for part in chosen(model))
    if heads and model.emb_dim % model.n_heads:
        near = min(_divisors(model.emb_dim), key=lambda n: (abs(n - model.n_heads), n))
        raise ConfigError(
            f"model.n_heads={model.n_heads}: model.emb_dim={model.emb_dim} is not divisible by it. "
            f"Allowed: divisors of {model.emb_dim}; the closest is {near}."
        )
    _check_options(model)


def _check_deep_mlp(model: ModelConfig) -> None:
    if model.layer_sizes is None or len(model.layer_sizes) < 2:
        raise ConfigError("model.layer_sizes: architecture=deep_mlp needs at least an input and an output size.")
    chosen(model)
    _check_options(model)


def _check_options(model: ModelConfig) -> None:
    parts = chosen(model)
    for slot, given in model.options.items():
        if slot not in registry.SLOTS:
            raise unknown("model.options", slot, registry.SLOTS)
        used = [part for part in parts if part.slot == slot]
        if not used:
            raise ConfigError(f"model.options.{slot}: this model has no {slot}, so the options would be ignored.")
        for name, value in given.items():
            for part in _takers(parts, slot, name) or used[:1]:
                part.checked_options({name: value})


def _check_all_read(config: Config, changed: Collection[str]) -> None:
    model = config.model
    read = keys_read(model)
    for key in sorted(changed):
        section, _, name = key.partition(".")
        why = _why_not_probed(config, key)
        if why:
            raise ConfigError(f"{key}: would be ignored, because {why}.")
        if section == "model" and not name.startswith("options") and name not in read:
            why = _why_unread(model, name)
            raise ConfigError(f"model.{name}={getattr(model, name)}: would be ignored, because {why}.")


def _why_not_probed(config: Config, key: str) -> str:
    """Why no probe would see a value of `data` or `probes`; empty when one does."""
    generation = config.probes.generation
    if config.data.source == "vectors":
        if key in ("probes.gradients.batch_size", "probes.gradients.context"):
            return "data.source=vectors has one fixed batch"
        if key in ("probes.parameters.context", "probes.shapes.context"):
            return "architecture=deep_mlp has no context"
        if key.startswith("probes.generation."):
            return "architecture=deep_mlp has no tokens to continue"
    elif key == "data.prompt" and generation is None:
        return "probes.generation is left out"
    elif key == "data.prompt" and generation and generation.prompt != config.data.prompt:
        return "probes.generation.prompt is set"
    return ""


def _why_unread(model: ModelConfig, name: str) -> str:
    if model.architecture == "deep_mlp":
        return f"architecture=deep_mlp reads only {', '.join(sorted(_DEEP_MLP_FRAME))}"
    if name == "norm":
        return f"norm_placement={model.norm_placement} leaves every norm out"
    if name == "shortcut" and model.n_layers:
        return "shortcut_attention and shortcut_feed_forward are both set"
    if name in _BLOCK_SLOTS | _BLOCK_FRAME:
        return "n_layers=0 leaves no block"
    if name == "drop_rate":
        return "every dropout site has its own rate"
    readers = [
        f"{slot}={component.name}"
        for slot in registry.SLOTS
        for component in registry.components(slot).values()
        if name in component.inputs
    ]
    return f"only {', '.join(readers)} would read it" if readers else "nothing in this model reads it"


def _check_data_fits(config: Config) -> None:
    vectors = config.data.source == "vectors"
    if vectors != (config.model.architecture == "deep_mlp"):
        raise ConfigError(
            f"data.source={config.data.source}: architecture={config.model.architecture} "
            + ("takes token ids, not vectors." if vectors else "takes vectors; use data=five_layer_input.")
        )
    if not vectors:
        return
    sizes = config.model.layer_sizes or []
    for key, rows, width in (("inputs", config.data.inputs, sizes[0]), ("targets", config.data.targets, sizes[-1])):
        if rows and any(len(row) != width for row in rows):
            raise ConfigError(f"data.{key}: rows must hold {width} numbers, as model.layer_sizes={sizes} says.")


def _check_contexts(config: Config) -> None:
    limit = config.model.context_length
    if config.model.architecture != "gpt":
        return
    for name in ("parameters", "shapes", "gradients"):
        probe = getattr(config.probes, name)
        if probe and probe.context and probe.context > limit:
            raise ConfigError(f"probes.{name}.context={probe.context}: longer than model.context_length={limit}.")


def _check_tokens(config: Config) -> None:
    """Vet the batch and the prompt now: a bad file or prompt should stop a sweep before its first run."""
    from gptlab.data.batches import VectorSource, load
    from gptlab.data.text import encode_prompt

    gradients, generation = config.probes.gradients, config.probes.generation
    source = load(config.data, vocab_size=config.model.vocab_size, seed=config.seed)
    if isinstance(source, VectorSource):
        return
    if gradients and gradients.context:
        source.check_batch(gradients.batch_size, gradients.context)
    if config.train.budget is not None and config.train.context:
        source.vet(config.train.context)
    if generation:
        encode_prompt(source.tokenizer, generation.prompt, config.model.vocab_size)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
