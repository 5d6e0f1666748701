"""Checkpoints: a folder per step, whole or not there at all, and never believed without its checksums.

    checkpoints/step_00001000/
        model.safetensors   weights by name; a tied head is its table
        state.pt            optimizers; read with weights_only, so that loading runs no code
        meta.json           whose it is, the step, what was found so far, SHA-256 of the two and of itself

Random streams need no state: they follow from the seed and the step.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import re
import secrets
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

FOLDER = "checkpoints"
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
    folder = run / FOLDER / f"step_{step:08}"
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.{secrets.token_hex(4)}")
    temporary.mkdir(parents=True)
    try:
        weights = {name: _alone(tensor) for name, tensor in _weights(model).items()}
        try:
            save_file(weights, temporary / "model.safetensors", metadata={"gptlab": identity})
            torch.save(optimizers, temporary / "state.pt")
        except (SafetensorError, RuntimeError) as error:  # how these two say that the disk is full
            raise OSError(errno.EIO, f"the checkpoint cannot be written ({error})", str(folder)) from error
        for name in _FILES:
            _sync(temporary / name)
        meta = {
            "schema": SCHEMA, "id": identity, "step": step, "progress": progress,
            "sha256": {name: _sha256(temporary / name) for name in _FILES},
        }  # fmt: skip
        text = json.dumps({**meta, "sha256_meta": _of_text(meta)}, indent=1)
        (temporary / "meta.json").write_text(text, encoding="utf-8")
        _sync(temporary / "meta.json")
        _sync(temporary)
        if folder.exists():  # left by an earlier try that came this far, or damaged
            shutil.rmtree(folder)
        os.rename(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync(folder.parent)
    return folder


def load(folder: Path, identity: str) -> Checkpoint:
    """Read and verify one checkpoint. CheckpointError, naming the file, when it is damaged or another run's."""
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        known = meta.pop("sha256_meta", None)
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{folder.name}: meta.json cannot be read: {error}", code="checkpoint-meta-unreadable", name=folder.name
        ) from error
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
            raise CheckpointError(f"{folder.name}: {name} is missing", code="checkpoint-file-missing", name=folder.name)
        if _sha256(folder / name) != sha256:
            raise CheckpointError(
                f"{folder.name}: {name} does not match its checksum: it is damaged",
                code="checkpoint-file-damaged",
                name=folder.name,
            )
    try:
        weights = load_file(folder / "model.safetensors")
        optimizers = torch.load(folder / "state.pt", weights_only=True, map_location="cpu")
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, OSError, EOFError) as error:
        raise CheckpointError(
            f"{folder.name}: cannot be read: {error}", code="checkpoint-unreadable", name=folder.name
        ) from error
    return Checkpoint(int(meta["step"]), weights, optimizers, meta["progress"])


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
    parent = run / FOLDER
    for path in parent.glob(".step_*"):
        shutil.rmtree(path, ignore_errors=True)
    folders = sorted(_folders(run))
    for folder in folders[: max(0, len(folders) - keep)]:
        shutil.rmtree(folder)
    if not keep and parent.exists() and not any(parent.iterdir()):
        parent.rmdir()


def checksums(run: Path) -> dict[str, str]:
    """File, relative to the run's folder -> SHA-256, for all checkpoints that are there."""
    files = sorted(file for folder in _folders(run) for file in folder.iterdir())
    return {file.relative_to(run).as_posix(): _sha256(file) for file in files}


@torch.no_grad()
def put_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy saved weights into the model. CheckpointError when names or shapes differ."""
    own = _weights(model)
    shapes, saved = ({name: tensor.shape for name, tensor in named.items()} for named in (own, weights))
    odd = [name for name in shapes.keys() | saved.keys() if shapes.get(name) != saved.get(name)]
    if odd:
        raise CheckpointError(
            f"the weights are another model's: {', '.join(sorted(odd)[:3])}", code="checkpoint-weights-of-another"
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
    return (path for path in (run / FOLDER).glob("step_*") if _NAME.fullmatch(path.name) and path.is_dir())


def _of_text(meta: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
