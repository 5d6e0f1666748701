"""Files of safetensors: what their headers say, and their tensors. The format holds numbers alone, no code.

A header is JSON behind its length in 8 bytes, and says for each tensor its type, shape and place; it is read here
without the library, so that looking costs no import and a truncated file is told from a damaged one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlab.errors import GptlabError
from gptlab.weights.found import Held

if TYPE_CHECKING:
    from torch import Tensor

_LONGEST = 100 << 20  # of a header, as the format has it


def header(path: Path) -> dict[str, Held]:
    """Name -> shape and type of all tensors in one file. GptlabError for a file that is cut short or no safetensors."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= _LONGEST or length + 8 > size:
            raise _damaged(path, "it has no header of safetensors, or is cut short within it")
        text = file.read(length)
    try:
        entries: dict[str, Any] = json.loads(text)
        entries.pop("__metadata__", None)
        found = {str(name): Held(tuple(map(int, at["shape"])), str(at["dtype"])) for name, at in entries.items()}
        end = max((int(at["data_offsets"][1]) for at in entries.values()), default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise _damaged(path, "its header is no list of tensors") from error
    if end + 8 + length != size:
        raise GptlabError(
            f"{path}: is cut short: its header speaks of {end + 8 + length:,} bytes, and it has {size:,}.",
            code="weights-cut-short",
            file=path,
            expected=end + 8 + length,
            size=size,
        )
    return found


def shards(folder: Path) -> tuple[Path, ...]:
    """The files of safetensors in a folder: the one, or those that its index names. Empty where there are none.

    GptlabError for an index that cannot be read, or names a file that is not there.
    """
    for stem in ("model", "pytorch_model"):
        index = folder / f"{stem}.safetensors.index.json"
        if index.is_file():
            return _indexed(index)
        if (whole := folder / f"{stem}.safetensors").is_file():
            return (whole,)
    return ()


def _indexed(index: Path) -> tuple[Path, ...]:
    try:
        names = sorted({str(name) for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(index, "it is no index of shards") from error
    files = tuple(index.parent / Path(name).name for name in names)
    lost = [file.name for file in files if not file.is_file()]
    if lost:
        raise GptlabError(
            f"{index.parent}: {len(lost)} of {len(files)} shards are missing: {', '.join(lost[:3])}.",
            code="weights-shard-missing",
            file=index,
            names=lost,
        )
    return files


def read(files: Sequence[Path], names: Collection[str]) -> dict[str, Tensor]:
    """The named tensors out of one or several files, as float32."""
    from safetensors import SafetensorError, safe_open

    wanted, found = set(names), {}
    for path in files:
        try:
            with safe_open(path, framework="pt") as opened:
                for name in wanted.intersection(opened.keys()):
                    found[name] = opened.get_tensor(name).float()
        except SafetensorError as error:
            raise _damaged(path, str(error).partition("\n")[0]) from error
    return found


def _damaged(path: Path, why: str) -> GptlabError:
    return GptlabError(f"{path}: cannot be read: {why}.", code="weights-damaged", file=path, why=why)
