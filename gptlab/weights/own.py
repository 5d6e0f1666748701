"""gptlab's own: the newest checkpoint of a run, and folders that `gptlab export --to safetensors` made."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

from gptlab.errors import GptlabError
from gptlab.store.config_file import read_config
from gptlab.store.damage import DamagedError, load_object
from gptlab.store.names import CHECKPOINTS
from gptlab.store.states import digest
from gptlab.weights import safetensors_files
from gptlab.weights.found import Found
from gptlab.weights.pieces import Piece

EXPORTED = "gptlab.json"
BOOK = "model.pth"  # of an export in the book's form
TENSORS = "model.safetensors"
RUN = "gptlab run"  # a format
_STEP = re.compile(r"step_(\d{8,})")
ORIGIN = ("weights", "weights_sha256")  # keys that say where a model's weights came from: the new ones are its own


def open_run(folder: Path) -> Found:
    """The newest whole checkpoint of the run in this folder. GptlabError where it has none, or it is damaged."""
    try:
        model = _of_config(read_config(folder), folder)
    except DamagedError as damage:
        raise GptlabError(f"{folder}: {damage}.", code="weights-run-config", file=folder) from damage
    steps = sorted(p for p in (folder / CHECKPOINTS).glob("step_*") if _STEP.fullmatch(p.name) and p.is_dir())
    if not steps:
        raise GptlabError(
            f"{folder}: this run has no checkpoint, so it has no weights of its own. A trained one keeps its newest "
            "where train.keep_checkpoints is 1 or more.",
            code="weights-run-without-checkpoint",
            folder=folder,
            key="train.keep_checkpoints",
        )
    newest = steps[-1]
    try:
        stated = load_object(newest / "meta.json")["sha256"][TENSORS]
    except (DamagedError, KeyError, TypeError) as error:
        raise _damaged(newest) from error
    if not (newest / TENSORS).is_file() or digest(newest / TENSORS) != stated:
        raise _damaged(newest)
    return _found(folder, RUN, newest / TENSORS, model, (f"the weights of {newest.name}",))


def open_exported(folder: Path) -> Found:
    """What `gptlab export --to safetensors` wrote there."""
    try:
        model = _of_config(load_object(folder / EXPORTED), folder)
    except DamagedError as damage:
        raise GptlabError(f"{folder}: {damage}.", code="weights-export-damaged", file=folder) from damage
    if not (folder / TENSORS).is_file():
        raise GptlabError(f"{folder}: {TENSORS} is missing.", code="weights-export-incomplete", folder=folder)
    return _found(folder, "gptlab safetensors", folder / TENSORS, model, ())


def _of_config(plain: dict[str, Any], folder: Path) -> dict[str, Any]:
    """`model` of a stored config, as far as it is of a GPT."""
    model = plain.get("model")
    if not isinstance(model, dict) or model.get("architecture", "gpt") != "gpt":
        raise GptlabError(f"{folder}: holds no GPT.", code="weights-no-gpt", folder=folder)
    return {key: value for key, value in model.items() if key not in ORIGIN and value is not None}


def _found(folder: Path, kind: str, file: Path, model: dict[str, Any], notes: tuple[str, ...]) -> Found:
    held = safetensors_files.header(file)
    return Found(
        path=folder,
        format=kind,
        family="gptlab",
        files=(file,),
        model=model,
        held=held,
        pieces=tuple(Piece(name, (name,)) for name in held),
        read=partial(safetensors_files.read, (file,)),
        notes=notes,
    )


def _damaged(checkpoint: Path) -> GptlabError:
    return GptlabError(
        f"{checkpoint}: does not match its checksum: it is damaged.", code="weights-checkpoint-damaged", file=checkpoint
    )
