"""Files and folders as the rest of gptlab writes and reads them; how they come to be whole is in `atomic`.

Only step histories grow in place: `append_jsonl` adds whole lines, and `read_jsonl` drops a torn last one and says so.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from gptlab.store import atomic
from gptlab.store.atomic import is_temporary, replacing, step, storage, sync_folder, temporary_name
from gptlab.store.json_text import json_text, parse_json


def write_bytes(path: Path | str, content: bytes, *, durable: bool = False) -> None:
    """Replace `path` by `content` in one step. `durable`: also fsync the folder, so that the name survives a power cut.

    StorageError when that cannot be done; what was there before is then still there.
    """
    path = Path(path)
    with replacing(path) as file:
        _write(file, content, path)
    if durable:
        with storage(path):
            sync_folder(path.parent)


def write_text(path: Path | str, content: str, *, durable: bool = False) -> None:
    """As `write_bytes`, in UTF-8. Characters that UTF-8 cannot hold (lone surrogates) are escaped."""
    write_bytes(path, content.encode("utf-8", errors="backslashreplace"), durable=durable)


def write_json(path: Path | str, value: Any, *, durable: bool = False) -> None:
    """As `write_text`, by the rules of `json_text`."""
    write_text(path, json_text(value, indent=1) + "\n", durable=durable)


def create(path: Path | str, content: bytes) -> bool:
    """Make `path` with `content`, whole, unless it exists: True for the one process, of many, that made it."""
    path = Path(path)
    temporary = temporary_name(path)
    with storage(path):
        try:
            step("open", path)
            with temporary.open("xb") as file:
                _write(file, content, path)
            step("link", path)
            os.link(temporary, path)  # fails where the name is taken, also on NFS
        except FileExistsError:
            return False
        except OSError:  # no hard links here
            step("create", path)
            try:
                with path.open("xb") as place:
                    place.write(content)
            except FileExistsError:
                return False
        finally:
            temporary.unlink(missing_ok=True)
    return True


def append_jsonl(path: Path | str, *rows: dict[str, Any]) -> None:
    """Add one line of JSON for each row, in one write.

    A torn line that an earlier process left at the end is cut off first, so that it never becomes part of a new one.
    """
    path = Path(path)
    lines = "".join(json_text(row) + "\n" for row in rows)
    with storage(path):
        step("append", path)
        with path.open("ab+") as file:
            end = file.seek(0, os.SEEK_END)
            if end and not _ends_whole(file, end):
                file.truncate(_end_of_lines(path))
            _write(file, lines.encode("utf-8", errors="backslashreplace"), path)
            os.fsync(file.fileno())


def read_jsonl(path: Path | str) -> tuple[list[dict[str, Any]], str]:
    """The rows of `path`, and a sentence when the last line was torn and dropped (otherwise empty).

    OSError when there is no such file, ValueError naming the line for any other line that is no JSON object.
    """
    path = Path(path)
    content = path.read_bytes()
    *lines, rest = content.split(b"\n")
    problem = f"{path.name}: the last line is torn ({len(rest)} bytes) and was dropped" if rest else ""
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = parse_json(line.decode("utf-8"))
        except ValueError as error:
            raise ValueError(f"{path.name}: line {number} is not valid JSON") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path.name}: line {number} is no JSON object")
        rows.append(row)
    return rows, problem


def read_json(path: Path | str) -> Any:
    """The JSON value in `path`. OSError or ValueError when it cannot be had."""
    with open(path, "rb") as file:
        return parse_json(file.read().decode("utf-8"))


def make_folder(path: Path | str) -> None:
    """Make a folder and those above it, where they are missing."""
    path = Path(path)
    if not path.is_dir():
        with storage(path):
            step("mkdir", path)
            path.mkdir(parents=True, exist_ok=True)


def create_folder(path: Path | str, name: str, content: bytes) -> bool:
    """Make a folder with one file in it, both at once; False where `path` exists."""
    path = Path(path)
    if os.path.lexists(path):
        return False
    temporary = temporary_name(path)
    with storage(path):
        try:
            step("mkdir", path)
            temporary.mkdir()
            step("open", path)
            with (temporary / name).open("xb") as file:
                _write(file, content, path)
            step("rename", path)
            os.rename(temporary, path)
        except BaseException as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if isinstance(error, OSError) and os.path.lexists(path):
                return False  # another was quicker
            raise
    return True


def move(path: Path | str, target: Path | str) -> None:
    """Rename a file or folder to a name in the same folder that is free."""
    path, target = Path(path), Path(target)
    with storage(target):
        step("move", target)
        if os.path.lexists(target):
            raise FileExistsError(17, "is already there", str(target))
        os.rename(path, target)


def remove(path: Path | str) -> None:
    """Take away a file, a link, or a folder with all in it; no error when there is none."""
    path = Path(path)
    with storage(path):
        step("remove", path)
        if path.is_dir() and not path.is_symlink():
            # Renamed first: a kill in the middle leaves something temporary, never half a run.
            gone = path if is_temporary(path.name) else temporary_name(path)
            if gone != path:
                os.rename(path, gone)
            shutil.rmtree(gone)
        else:
            path.unlink(missing_ok=True)


def sweep(folder: Path, beginning: str = "") -> None:
    """Take away what killed writers left in `folder`, of the names that begin so. Only for the owner of these names: a
    write that is going on would fail."""
    for name in os.listdir(folder):
        if name.startswith(f".{beginning}") and is_temporary(name):
            remove(folder / name)


def _write(file: Any, content: bytes, path: Path) -> None:
    if atomic.hook is None:
        file.write(content)
    else:  # tests only: a process may die with half of it written
        half = len(content) // 2
        file.write(content[:half])
        file.flush()
        atomic.hook("write", path)
        file.write(content[half:])
    file.flush()


def _ends_whole(file: Any, end: int) -> bool:
    file.seek(end - 1)
    whole: bool = file.read(1) == b"\n"
    return whole


def _end_of_lines(path: Path) -> int:
    return path.read_bytes().rfind(b"\n") + 1
