"""Checkpoints: a folder per step, whole or not there at all, and never believed without its checksums.

    checkpoints/step_00001000/
        model.safetensors   weights by name; a tied head is its table
        state.pt            optimizers; read with weights_only, so that loading runs no code
        meta.json           whose it is, the step, what was found so far, SHA-256 of the two and of itself

Random streams need no state: they follow from the seed and the step.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from gptlab.errors import GptlabError
from gptlab.store.atomic import is_temporary, replacing_folder, storage
from gptlab.store.damage import UNREADABLE, DamagedError, load_object
from gptlab.store.json_text import json_text, plain
from gptlab.store.names import CHECKPOINTS
from gptlab.store.states import digest
from gptlab.training.refused_writes import save_optimizers, system_error

SCHEMA = 1
_FILES = ("model.safetensors", "state.pt")
_NAME = re.compile(r"step_(\d{8,})")


class CheckpointError(GptlabError):
    """A checkpoint that cannot be used, and why."""


@dataclass(frozen=True)
class Checkpoint:
    """What was saved, read back and verified."""

    step: int
    weights: dict[str, Tensor]
    optimizers: list[dict[str, Any]]
    progress: dict[str, Any]


def save(
    run: Path, identity: str, step: int, model: nn.Module, optimizers: list[dict[str, Any]], progress: dict[str, Any]
) -> Path:
    """Write the checkpoint of `step` under the run's folder, and return where it is. OSError when it cannot be."""
    folder = run / CHECKPOINTS / f"step_{step:08}"
    with storage(folder.parent):
        folder.parent.mkdir(exist_ok=True)  # not those above: a run whose folder was taken away is not made anew
    with replacing_folder(folder) as place:
        weights = {name: _alone(tensor) for name, tensor in _weights(model).items()}
        try:
            save_file(weights, place / "model.safetensors", metadata={"gptlab": identity})
        except SafetensorError as error:
            raise OSError(system_error(error), f"the checkpoint cannot be written ({error})", str(folder)) from error
        save_optimizers(optimizers, place / "state.pt")
        meta = {
            "schema": SCHEMA, "id": identity, "step": step, "progress": plain(progress),
            "sha256": {name: digest(place / name) for name in _FILES},
        }  # fmt: skip
        text = json_text({**meta, "sha256_meta": _of_text(meta)}, indent=1)
        (place / "meta.json").write_bytes(text.encode("utf-8", errors="backslashreplace"))
    return folder


def load(folder: Path, identity: str) -> Checkpoint:
    """Read and verify one checkpoint. CheckpointError, naming the file, when it is damaged or another run's."""
    try:
        meta = _verified(folder, identity)
        weights = load_file(folder / "model.safetensors")
        optimizers = torch.load(folder / "state.pt", weights_only=True, map_location="cpu")
        return Checkpoint(int(meta["step"]), weights, optimizers, meta["progress"])
    except DamagedError as damage:
        raise CheckpointError(
            f"{folder.name}: {damage}", code="checkpoint-damaged", name=folder.name, damage=str(damage)
        ) from damage
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, *UNREADABLE) as error:
        first = f"{error}".strip().partition("\n")[0].partition(". ")[0]  # torch goes on for a page
        raise CheckpointError(
            f"{folder.name}: cannot be read: {first}", code="checkpoint-unreadable", name=folder.name
        ) from error


def _verified(folder: Path, identity: str) -> dict[str, Any]:
    """meta.json, after all that it says has been found true."""
    meta = load_object(folder / "meta.json")
    known = meta.pop("sha256_meta", None)
    if known != _of_text(meta):
        raise CheckpointError(
            f"{folder.name}: meta.json does not match its checksum: it is damaged",
            code="checkpoint-meta-damaged",
            name=folder.name,
        )
    if meta["schema"] != SCHEMA:
        raise CheckpointError(
            f"{folder.name}: has format {meta['schema']}; this version reads {SCHEMA}",
            code="checkpoint-format",
            name=folder.name,
            schema=SCHEMA,
        )
    if meta["id"] != identity:
        raise CheckpointError(
            f"{folder.name}: belongs to another variant or seed ({meta['id'][:8]}, not {identity[:8]})",
            code="checkpoint-of-another",
            name=folder.name,
        )
    for name, sha256 in meta["sha256"].items():
        if not (folder / name).is_file():
            said = f"{folder.name}: {name} is missing"
            raise CheckpointError(said, code="checkpoint-file-missing", name=folder.name, file=name)
        if digest(folder / name) != sha256:
            raise CheckpointError(
                f"{folder.name}: {name} does not match its checksum: it is damaged",
                code="checkpoint-file-damaged",
                name=folder.name,
                file=name,
            )
    return meta


def newest(run: Path, identity: str) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that verifies, if any, and a sentence for each newer one that had to be passed over."""
    refused: list[str] = []
    for folder in sorted(_folders(run), reverse=True):
        try:
            return load(folder, identity), refused
        except CheckpointError as error:
            refused.append(f"checkpoint not used: {error}")
    return None, refused


def tidy(run: Path, keep: int) -> None:
    """Remove what broken-off saves left, and all checkpoints but the newest `keep`."""
    parent = run / CHECKPOINTS
    for path in parent.glob(".step_*"):
        if is_temporary(path.name):
            shutil.rmtree(path, ignore_errors=True)
    folders = sorted(_folders(run))
    for folder in folders[: max(0, len(folders) - keep)]:
        shutil.rmtree(folder)
    if not keep and parent.exists() and not any(parent.iterdir()):
        parent.rmdir()


def checksums(run: Path) -> dict[str, str]:
    """File, relative to the run's folder -> SHA-256, for all checkpoints that are there."""
    files = sorted(file for folder in _folders(run) for file in folder.iterdir())
    return {file.relative_to(run).as_posix(): digest(file) for file in files}


@torch.no_grad()
def put_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy saved weights into the model. CheckpointError when names or shapes differ."""
    own = _weights(model)
    shapes, saved = ({name: tensor.shape for name, tensor in named.items()} for named in (own, weights))
    odd = [name for name in shapes.keys() | saved.keys() if shapes.get(name) != saved.get(name)]
    if odd:
        raise CheckpointError(
            f"the weights are another model's: {', '.join(sorted(odd)[:3])}",
            code="checkpoint-weights-of-another",
            names=sorted(odd),
        )
    for name, tensor in own.items():
        tensor.copy_(weights[name])


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Every weight and stored buffer, once: a tied head by the name of its table."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor.detach()))
    return dict(found.values())


def _alone(tensor: Tensor) -> Tensor:
    """`tensor` itself if nothing else shares its memory, else a copy: safetensors takes no views."""
    own = tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes
    return tensor if own else tensor.clone(memory_format=torch.contiguous_format)


def _folders(run: Path) -> Iterator[Path]:
    return (path for path in (run / CHECKPOINTS).glob("step_*") if _NAME.fullmatch(path.name) and path.is_dir())


def _of_text(meta: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()
