"""Files of torch.save: the book's .pth, and nanoGPT's checkpoints. Tensors and plain values are read, code never is."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gptlab.errors import GptlabError
from gptlab.weights.families import book, nanogpt
from gptlab.weights.found import Found, Held

_COMPILED = "_orig_mod."  # before each name, where the model was compiled when it was saved


def open_file(path: Path) -> Found:
    """What the file holds. GptlabError for a pickle with code in it, a damaged file, or another project's names."""
    loaded = _loaded(path)
    state = next((loaded[key] for key in ("model", "model_state_dict", "state_dict") if key in loaded), loaded)
    tensors = {str(name): value for name, value in state.items()} if isinstance(state, Mapping) else {}
    tensors = {name.removeprefix(_COMPILED): value for name, value in tensors.items()}
    if not tensors or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise _of_nobody(path, tensors or loaded)
    held = {name: Held(tuple(value.shape), _kind(value)) for name, value in tensors.items()}
    arguments = loaded.get("model_args")
    if isinstance(arguments, dict):
        read = nanogpt.read_checkpoint(arguments, held, str(path))
    elif "tok_emb.weight" in held and "trf_blocks.0.att.W_query.weight" in held:
        read = book.read_state(held, str(path))
    else:
        raise _of_nobody(path, tensors)
    return Found(
        path=path,
        format=read.format,
        family=read.format,
        files=(path,),
        model=read.model,
        held=held,
        pieces=tuple(read.pieces),
        read=partial(_read, path),
        dropped=read.dropped,
        notes=tuple(read.notes),
    )


def _loaded(path: Path) -> dict[Any, Any]:
    """The dictionary that was saved, its tensors left in the file where its format allows that."""
    try:
        with warnings.catch_warnings(action="ignore"):  # torch tells of protocols; what it cannot read, it refuses
            loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except pickle.UnpicklingError as error:
        said = str(error)
        if "weights_only" in said.lower() and ("Unsupported" in said or "not an allowed" in said):
            raise GptlabError(
                f"{path}: holds code, or objects of classes, and not only tensors. It is not loaded: a pickle can do "
                "anything. Save the model's state_dict alone, or safetensors.",
                code="weights-hold-code",
                file=path,
            ) from error
        raise _damaged(path, said) from error
    except (RuntimeError, EOFError, ValueError, KeyError, OSError, AttributeError, TypeError, IndexError) as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(loaded, Mapping):
        raise _of_nobody(path, ())
    return dict(loaded)


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _read(path: Path, names: Collection[str]) -> dict[str, Tensor]:
    loaded = _loaded(path)
    state = next((loaded[key] for key in ("model", "model_state_dict", "state_dict") if key in loaded), loaded)
    tensors = {str(name).removeprefix(_COMPILED): value for name, value in state.items()}
    return {name: tensors[name].float() for name in names}


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _damaged(path: Path, said: str) -> GptlabError:
    why = said.strip().partition("\n")[0].partition(". ")[0] or "it ends too early"
    return GptlabError(f"{path}: cannot be read by torch.load: {why}.", code="weights-pickle-damaged", file=path)


def _of_nobody(path: Path, names: Collection[Any]) -> GptlabError:
    seen = ", ".join(sorted(map(str, names))[:3]) or "nothing by name"
    return GptlabError(
        f"{path}: holds {seen}. Known are the state_dict of the book's GPTModel (tok_emb.weight, "
        "trf_blocks.0.att.W_query.weight, ...) and nanoGPT's checkpoints (model, model_args).",
        code="weights-of-nobody-known",
        file=path,
        names=sorted(map(str, names))[:3],
    )
