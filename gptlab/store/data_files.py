"""The files that a run read its data from: recorded with the run, and looked at again later.

A file whose size, times and inode are those of then is taken as unchanged; of every other one the content is compared.
The time of the last change of status is among them: a program can set back the time of modification, but not that one.
"""

from __future__ import annotations

import functools
import glob
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import file_digest
from pathlib import Path
from typing import Any

Stamp = tuple[int, int, int, int]  # size, time of modification and of status in ns, inode


@dataclass(frozen=True)
class DataFile:
    """One file as it was when it was read."""

    path: str  # absolute
    stamp: Stamp
    sha256: str


@dataclass(frozen=True)
class DataRecord:
    """What a run's data was: the SHA-256 of its content, and what the config named (a file, a folder, a glob; made
    absolute) -> the files that this was."""

    sha256: str = ""
    files: Mapping[str, tuple[DataFile, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def record(sha256: str, names: Iterable[str]) -> DataRecord:
    """What `names` are now. OSError when one of the files cannot be read."""
    return DataRecord(sha256, {os.path.abspath(name): tuple(_now(path) for path in matching(name)) for name in names})


def parse_data(content: Any) -> DataRecord:
    """`content` in types; empty for what is missing. ValueError, KeyError or TypeError when it makes no sense."""
    if not content:
        return DataRecord()
    files = {
        str(name): tuple(
            DataFile(str(file["path"]), tuple(map(int, file["stamp"])), str(file["sha256"]))  # type: ignore[arg-type]
            for file in found
        )
        for name, found in (content.get("files") or {}).items()
    }
    return DataRecord(str(content.get("sha256") or ""), files)


def matching(name: str) -> list[str]:
    """The file of that very name, all files in the folder, or those that a glob matches; absolute, sorted."""
    path = os.path.abspath(os.path.expanduser(name))
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        return sorted(str(found) for found in Path(path).rglob("*") if found.is_file())
    return sorted(found for found in glob.glob(path, recursive=True) if os.path.isfile(found))


def stamp_of(path: str) -> Stamp:
    """What changes when the file does, also when it is written anew with the same size and time."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


class Look:
    """One look at what runs depend on: however many share a file, or their code, it is asked for once."""

    def __init__(self) -> None:
        self.code: dict[tuple[tuple[str, str], ...], list[str]] = {}  # recorded code -> what has changed
        self._seen: dict[tuple[str, tuple[DataFile, ...]], str] = {}

    def changes(self, recorded: DataRecord) -> list[str]:
        """What has changed since, in words, for each name; empty for nothing."""
        words = []
        for name, files in recorded.files.items():
            if (name, files) not in self._seen:
                self._seen[name, files] = _change(name, files)
            words += [self._seen[name, files]] if self._seen[name, files] else []
        return words


def _change(name: str, recorded: tuple[DataFile, ...]) -> str:
    try:
        if not (found := matching(name)):
            return f"the text of {name} is gone"
        then = [file.path for file in recorded]
        if found != then or any(stamp_of(f.path) != f.stamp and _now(f.path).sha256 != f.sha256 for f in recorded):
            return f"the text of {name}"
    except OSError:
        return f"the text of {name} cannot be read"
    return ""


def _now(path: str) -> DataFile:
    stamp = stamp_of(path)
    return DataFile(path, stamp, _sha256(path, stamp))


@functools.lru_cache(maxsize=1024)  # a sweep asks for each of its runs
def _sha256(path: str, stamp: Stamp) -> str:
    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()
