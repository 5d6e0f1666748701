"""The model of a run, or of any weights, as files for other projects: exactly, or not at all."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gptlab.config import Config, ModelConfig, stored
from gptlab.data.gpt2 import write_vocabulary
from gptlab.declare.one_spelling import settle
from gptlab.errors import GptlabError, unknown
from gptlab.model import skeleton
from gptlab.model.feed_forward import hidden_width
from gptlab.model.pattern import expanded
from gptlab.model.per_layer import BLOCK_KEYS, layer_config
from gptlab.running.trained import Trained
from gptlab.store import files
from gptlab.store.atomic import replacing_folder
from gptlab.weights.families.family import Family
from gptlab.weights.hugging_face import CONFIG, FAMILIES
from gptlab.weights.loading import HEAD, TABLE, shapes_of, state_of
from gptlab.weights.own import BOOK, EXPORTED, TENSORS
from gptlab.weights.settings import Settings

FORMS = ("hf", "safetensors", "book")
# They change how a model is trained or where it came from, and not what it computes.
_OF_TRAINING = frozenset({"init", "after_step", "weights", "weights_sha256", "pattern", "layers", "options"})
_DROPOUT = ("drop_rate", "drop_embedding", "drop_attention", "drop_shortcut", "drop_feed_forward")
_IDLE_OPTIONS = {("attention", "implementation"), ("head", "z_loss")}
# The book's model at any size; what else a model has stands in its way. A copy of a shared table is a head of its own.
_BOOK = {"tie_weights": False}
_BOOK_SIZES = ("vocab_size", "context_length", "emb_dim", "n_heads", "n_layers", "qkv_bias")


def export(found: Trained, form: str, folder: Path | str) -> Path:
    """Write the model into a new folder as `form`, one of FORMS, and return the file with its tensors.

    ConfigError for another form; GptlabError where the folder has something in it, or no stock class, or not the book's
    model, is this very model: it names the key that stands in the way.
    """
    if form not in FORMS:
        raise unknown("--to", form, FORMS)
    place = Path(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise GptlabError(
            f"{place}: is there already, and not empty. Name a new folder.", code="export-place-taken", path=place
        )
    state = {name: tensor.float().cpu() for name, tensor in state_of(found.model).items()}
    parts = {"hf": _hugging_face, "safetensors": _own, "book": _book}[form](found, state)
    files.make_folder(place.parent)
    with replacing_folder(place) as new:  # whole or not at all
        for name, content in parts:
            _write(new / name, content)
        if form == "hf" and found.tokenizer.name == "gpt2":
            write_vocabulary(new)
    return place / (BOOK if form == "book" else TENSORS)


def stock_class(config: Config) -> tuple[Family, ModelConfig, dict[str, Any]]:
    """The family whose stock class is this model, the model as that class has it, and its config.

    Found by asking: each family says the model in its own words, these are read back, and nothing may have changed.
    GptlabError, with the first key that did in the family that comes closest, where there is none.
    """
    nearest: tuple[str, list[str]] = ("", [])
    for family in FAMILIES.values():
        model = _filled(expanded(config.model), family.zeros)
        try:
            said = json.loads(json.dumps(family.config_of(dataclasses.asdict(model))))
            again = ModelConfig(**family.model_of(Settings(said, family.name)))
            keys = list(_differences(config, model, again))
        except (GptlabError, KeyError, TypeError, ZeroDivisionError):
            continue  # no words for it
        if not keys:
            return family, model, said
        if not nearest[1] or len(keys) < len(nearest[1]):
            nearest = (family.class_name, keys)
    raise _in_the_way("no class of transformers' own is this model", nearest, config)


def _hugging_face(found: Trained, state: Mapping[str, Tensor]) -> list[tuple[str, Any]]:
    family, model, said = stock_class(found.config)
    whole = _completed(state, model)
    tensors: dict[str, Tensor] = {}
    for piece in family.pieces(dataclasses.asdict(model)):
        if all(name in whole for name in piece.ours):
            tensors[piece.theirs] = piece.join([whole.pop(name) for name in piece.ours])
    assert not whole, f"without a name there: {list(whole)}"
    end = 50256 if model.vocab_size == 50257 else None
    config = {
        "architectures": [family.class_name], "model_type": family.name, "dtype": "float32", **said,
        "bos_token_id": end, "eos_token_id": end,
    }  # fmt: skip
    return [(CONFIG, config), (TENSORS, tensors)]


def _own(found: Trained, state: Mapping[str, Tensor]) -> list[tuple[str, Any]]:
    model = stored(replace(found.config, model=replace(found.config.model, weights=None, weights_sha256="")))["model"]
    return [(EXPORTED, {"schema": 1, "model": model}), (TENSORS, dict(state))]


def _book(found: Trained, state: Mapping[str, Tensor]) -> list[tuple[str, Any]]:
    """A state_dict that the book's GPTModel loads strictly: with its masks."""
    own = _filled(expanded(found.config.model), _BOOK)
    book = ModelConfig(**{key: getattr(own, key) for key in _BOOK_SIZES})
    keys = list(_differences(found.config, own, book))
    if keys:
        raise _in_the_way("chapter 4's GPTModel is not this model", ("GPTModel", keys), found.config)
    tensors = _completed(state, own)
    mask = torch.ones(own.context_length, own.context_length).triu(1)
    masks = {f"trf_blocks.{layer}.att.mask": mask.clone() for layer in range(own.n_layers)}
    return [(BOOK, {**tensors, **masks})]


def _in_the_way(what: str, nearest: tuple[str, list[str]], config: Config) -> GptlabError:
    name, keys = nearest
    key = keys[0] if keys else "model"
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
    more = f" (and {', '.join(keys[1:])})" if keys[1:] else ""
    return GptlabError(
        f"{what}: {key}={value} stands in the way of {name or 'each'}{more}. --to safetensors holds any model.",
        code="export-in-the-way",
        key=key,
        value=value,
        keys=keys,
        nearest=name,
    )


def _filled(model: ModelConfig, zeros: Mapping[str, Any]) -> ModelConfig:
    """The model with what a class cannot leave out: weights that are zero there change nothing."""
    changes: dict[str, Any] = {}
    options = {slot: dict(given) for slot, given in model.options.items()}
    for key, value in zeros.items():
        _, _, rest = key.partition("options.")
        if rest:
            slot, _, name = rest.partition(".")
            options.setdefault(slot, {})[name] = value
        else:
            changes[key] = value
    if model.norm == "rmsnorm":
        options.get("norm", {}).pop("bias", None)
    return replace(model, **changes, options=options)


def _completed(state: Mapping[str, Tensor], model: ModelConfig) -> dict[str, Tensor]:
    """All tensors of this model: those that it has beyond `state` are zero, a head of its own a copy of the table."""
    found: dict[str, Tensor] = {}
    for name, shape in shapes_of(skeleton(model)).items():
        found[name] = state[name] if name in state else state[TABLE].clone() if name == HEAD else torch.zeros(shape)
    return found


def _differences(config: Config, ours: ModelConfig, theirs: ModelConfig) -> Iterator[str]:
    """Dotted keys in which two models compute something else."""
    one, other = (settle(replace(config, model=_plain(model))).model for model in (ours, theirs))
    for field in dataclasses.fields(ModelConfig):
        key = field.name
        if key not in _OF_TRAINING and key not in _DROPOUT and getattr(one, key) != getattr(other, key):
            yield f"model.{key}"
    seen = {f"model.options.{place}" for place in _unlike(one.options, other.options)} if not one.layers else set()
    yield from sorted(seen)
    if one.n_layers != other.n_layers or not (one.layers or other.layers):
        return
    for layer in range(one.n_layers):
        mine, its = layer_config(one, layer), layer_config(other, layer)
        keys = [k for k in BLOCK_KEYS if k not in (*_DROPOUT, "options") and getattr(mine, k) != getattr(its, k)]
        if keys or list(_unlike(mine.options, its.options)):
            yield "model.layers"
            return


def _plain(model: ModelConfig) -> ModelConfig:
    """Without dropout, and with the width of the feed-forward layer as a number."""
    width = hidden_width(model.emb_dim, model.expansion, model.hidden_dim, model.hidden_multiple)
    open_again: dict[str, Any] = dict.fromkeys(_DROPOUT[1:])
    return replace(
        expanded(model), drop_rate=0.0, hidden_dim=width, expansion=4.0, hidden_multiple=None, init="torch",
        options={slot: given for slot, given in model.options.items() if slot != "init"}, weights=None,
        weights_sha256="", **open_again,
    )  # fmt: skip


def _unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    for slot in {*one, *other}:
        mine, its = one.get(slot, {}), other.get(slot, {})
        for name in {*mine, *its}:
            if (slot, name) not in _IDLE_OPTIONS and not _close(mine.get(name), its.get(name)):
                yield f"{slot}.{name}"


def _close(one: Any, other: Any) -> bool:
    """Equal, numbers to the last bits: 1 / (1 / 7) may be another float than 7."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-12 * abs(one)
    return bool(one == other)


def _write(path: Path, content: Any) -> None:
    if path.suffix == ".json":
        files.write_text(path, json.dumps(content, indent=2) + "\n")
        return
    tensors = {name: tensor.contiguous().clone() for name, tensor in content.items()}
    if path.suffix == ".pth":
        torch.save(tensors, path)
        return
    from safetensors.torch import save_file

    save_file(tensors, path, metadata={"format": "pt"})
