"""A folder as transformers saves a model: config.json beside files of safetensors, the tokenizer's perhaps too."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlab.errors import GptlabError, unknown
from gptlab.weights import safetensors_files
from gptlab.weights.families import gpt2, llama, neox
from gptlab.weights.families.family import Family
from gptlab.weights.found import Found, Held
from gptlab.weights.settings import Settings

if TYPE_CHECKING:
    from torch import Tensor

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
FAMILIES: dict[str, Family] = {
    family.name: family for family in (gpt2.GPT2, gpt2.GPTJ, neox.NEOX, neox.PHI, *llama.FAMILIES)
}


def open_folder(folder: Path) -> Found:
    """What the folder holds. GptlabError, naming the file and the key, for what cannot be a model of gptlab's."""
    config = folder / CONFIG
    given = _config(config)
    kind = str(given.get("model_type", ""))
    if kind not in FAMILIES:
        error = unknown("model_type", kind, FAMILIES)
        raise error.reworded(f"{config}: {error}", file=config)
    family, settings = FAMILIES[kind], Settings(given, str(config))
    model = family.model_of(settings)
    files = safetensors_files.shards(folder)
    if not files:
        raise GptlabError(
            f"{folder}: has no model.safetensors, and no index of shards. Other formats are not read, for they can "
            "hold code; transformers saves this one by save_pretrained.",
            code="weights-no-safetensors",
            folder=folder,
        )
    held: dict[str, Held] = {}
    for file in files:
        held |= safetensors_files.header(file)
    full = _full_names(held, family)
    notes = [f"{CONFIG} says {text}, which is not read" for text in settings.unread()]
    tokenizer = folder / TOKENIZER
    return Found(
        path=folder,
        format="hugging face",
        family=kind,
        files=files,
        model=model,
        held={name: held[there] for name, there in full.items()},
        pieces=tuple(family.pieces(model)),
        read=partial(_read, files, full),
        dropped=_dropped(full, family, bool(model["tie_weights"])),
        notes=tuple(notes),
        tokenizer=tokenizer if tokenizer.is_file() else None,
    )


def _config(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise GptlabError(f"{path}: is no JSON.", code="weights-config-damaged", file=path) from error
    if not isinstance(found, dict):
        raise GptlabError(f"{path}: is no JSON object.", code="weights-config-no-object", file=path)
    return found


def _full_names(held: Collection[str], family: Family) -> dict[str, str]:
    """Name with the prefix of the whole model -> name in the file: files of the bare model lack it."""
    if any(name.startswith(family.prefix) for name in held):
        return {name: name for name in held}
    whole = ("lm_head.", "embed_out.")
    return {name if name.startswith(whole) else f"{family.prefix}{name}": name for name in held}


def _dropped(names: Collection[str], family: Family, tied: bool) -> dict[str, str]:
    found = {
        name: why for name in names for end, why in family.dropped.items() if name.endswith(f".{end}")
    }  # fmt: skip
    if tied and "lm_head.weight" in names:
        found["lm_head.weight"] = TIED
    return found


TIED = "the table of tokens again"


def _read(files: tuple[Path, ...], full: dict[str, str], names: Collection[str]) -> dict[str, Tensor]:
    there = {full[name]: name for name in names}
    return {there[name]: tensor for name, tensor in safetensors_files.read(files, there).items()}
