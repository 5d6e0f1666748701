"""Tokens of large texts, kept on disk: made once, then mapped into memory.

Under `tokens/` in GPTLAB_CACHE (or XDG_CACHE_HOME/gptlab, or ~/.cache/gptlab) each text and tokenizer has a folder:

    ids.npy     (N,) uint16 or uint32
    ends.npy    (documents + 1,) int64: where each document ends, and then the largest id
    ids.npy.sha256, ends.npy.sha256     what they should be; written after them

Every file is written beside its place and renamed, and its content follows from the key, so any number of processes may
fill the cache at once. What does not match its checksum is made again. The folder may be deleted at any time.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from gptlab.data.corpus import Corpus
from gptlab.errors import GptlabError
from gptlab.store.atomic import replacing

if TYPE_CHECKING:
    import numpy.typing as npt

VERSION = 1  # of the way in which text becomes ids; part of every key


def folder() -> Path:
    """Where gptlab keeps what it can make again."""
    named = os.environ.get("GPTLAB_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "gptlab"


def cached(key: list[Any], encode: Callable[[], Iterable[tuple[int, npt.NDArray[Any]]]], wide: bool) -> Corpus:
    """The corpus of `key`, made by `encode` where it is not there: (number of the document, ids of its next piece).

    `wide`: whether ids may need more than 16 bits. GptlabError when the folder cannot be written.
    """
    name = hashlib.sha256(json.dumps([VERSION, *key]).encode()).hexdigest()[:32]
    place = folder() / "tokens" / name
    found = _read(place)
    if found is None:
        try:
            place.mkdir(parents=True, exist_ok=True)
            _write(place, encode(), wide)
        except OSError as error:
            raise GptlabError(
                f"{place}: tokens cannot be kept there: {error.strerror or error}. GPTLAB_CACHE names another folder.",
                code="cache-not-writable",
                place=place,
            ) from error
        found = _read(place)
    if found is None:
        raise GptlabError(
            f"{place}: tokens were damaged right after they were written.", code="cache-damaged", place=place
        )
    return found


def collected(encoded: Iterable[tuple[int, npt.NDArray[Any]]], wide: bool) -> Corpus:
    """The same corpus in memory alone: for texts that are quickly made."""
    import numpy as np

    pieces, ends = _pieces(encoded, wide), list[int]()
    ids = np.concatenate(list(_counted(pieces, ends)) or [np.zeros(0, np.uint16)])
    return Corpus(ids, np.array(ends, dtype=np.int64), int(ids.max()) if len(ids) else 0)


def seal(path: Path) -> None:
    """Write down the checksum of a file that is complete, in a file beside it."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with replacing(path.with_name(f"{path.name}.sha256")) as seal_file:
        seal_file.write(digest.encode())


def sound(path: Path) -> bool:
    """Whether the file is there and as it was sealed."""
    try:
        sealed, status = path.with_name(f"{path.name}.sha256").read_text(), path.stat()
        return _sha256(path, status.st_size, status.st_mtime_ns) == sealed
    except (OSError, ValueError):
        return False


def _read(place: Path) -> Corpus | None:
    """What is there, or None when anything is missing or damaged."""
    import numpy as np

    if not (sound(place / "ids.npy") and sound(place / "ends.npy")):
        return None
    ids, ends = np.load(place / "ids.npy", mmap_mode="r"), np.load(place / "ends.npy")
    return Corpus(ids, ends[:-1], int(ends[-1]))


@functools.lru_cache(maxsize=64)  # once per process and file, not once per run
def _sha256(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(place: Path, encoded: Iterable[tuple[int, npt.NDArray[Any]]], wide: bool) -> None:
    import numpy as np

    ends, largest = list[int](), 0
    with replacing(place / "ids.npy") as file:
        _header(file, 0, wide)
        for piece in _counted(_pieces(encoded, wide), ends):
            largest = max(largest, int(piece.max()))
            file.write(piece.tobytes())
        file.seek(0)
        _header(file, ends[-1] if ends else 0, wide)
    with replacing(place / "ends.npy") as file:
        np.save(file, np.array([*ends, largest], dtype=np.int64))
    seal(place / "ids.npy")
    seal(place / "ends.npy")


def _header(file: BinaryIO, count: int, wide: bool) -> None:
    """The head of an .npy file. numpy pads it to the same length for any count."""
    import numpy as np

    described = {"descr": "<u4" if wide else "<u2", "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(file, described)


def _pieces(encoded: Iterable[tuple[int, npt.NDArray[Any]]], wide: bool) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    import numpy as np

    for number, ids in encoded:
        if len(ids):
            yield number, ids.astype(np.uint32 if wide else np.uint16)


def _counted(pieces: Iterable[tuple[int, npt.NDArray[Any]]], ends: list[int]) -> Iterator[npt.NDArray[Any]]:
    """The pieces; meanwhile `ends` comes to hold where each document ends."""
    total = 0
    for number, piece in pieces:
        while len(ends) <= number:  # a document without tokens ends where it starts
            ends.append(total)
        total += len(piece)
        ends[number] = total
        yield piece
