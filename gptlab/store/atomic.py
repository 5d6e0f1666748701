"""The one way in which a file or folder is written: whole, or not there at all.

A temporary name beside the target, flush, fsync, rename. What a killed writer leaves behind has a name that
`is_temporary` knows: it is never read, and is swept by whoever owns the folder next, or by `gptlab gc`.

`hook`, normally None, is asked before every single operation. Tests let it raise, or end the process, at operation N.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

hook: Callable[[str, Path], None] | None = None
_TEMPORARY = re.compile(r"\..+\.\d+\.[0-9a-f]{8}\.tmp")
_FULL = (errno.ENOSPC, errno.EDQUOT)


class StorageError(OSError):
    """A file could not be written: a full disk, a missing permission. Never the fault of what is being recorded."""

    def __str__(self) -> str:
        if self.errno in _FULL:
            return f"disk full ({self.filename}); make room, and the same command goes on"
        return super().__str__()


@contextmanager
def replacing(path: Path | str, *, sync: bool = True) -> Iterator[BinaryIO]:
    """A new file to write and seek in, which takes the place of `path` when the body ends without an exception.

    Two processes may do so at once: the last one wins. StorageError when it cannot be done; what was there before is
    then still there.
    """
    path = Path(path)
    temporary = temporary_name(path)
    with storage(path):
        try:
            step("open", path)
            with temporary.open("xb") as file:  # not tempfile: its files ignore the umask
                yield file
                if sync:
                    file.flush()
                    step("fsync", path)
                    os.fsync(file.fileno())
            step("rename", path)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def replacing_folder(path: Path | str) -> Iterator[Path]:
    """A new folder to fill, which takes the place of `path` when the body ends without an exception.

    The files in it are put on disk first. The folder above must be there. StorageError when it cannot be done.
    """
    path = Path(path)
    temporary = temporary_name(path)
    with storage(path):
        try:
            step("mkdir", path)
            temporary.mkdir()
            yield temporary
            for file in sorted(temporary.iterdir()):
                sync_file(file)
            sync_folder(temporary)
            step("rename", path)
            if path.exists():
                shutil.rmtree(path)
            os.rename(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_folder(path.parent)


def temporary_name(path: Path) -> Path:
    """A name beside `path` that no other writer has."""
    return path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def is_temporary(name: str) -> bool:
    """Whether a file of this name is what a killed writer left behind (or is being written just now)."""
    return _TEMPORARY.fullmatch(name) is not None


def sync_file(path: Path) -> None:
    """Put on disk what a file has by now."""
    with storage(path), path.open("rb+") as file:
        step("fsync", path)
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Put on disk which names a folder has, so that they survive a power cut."""
    step("fsync folder", folder)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        pass  # some file systems cannot; the file itself is safe
    finally:
        os.close(handle)


def step(operation: str, path: Path) -> None:
    """Announce an operation to the hook, if there is one."""
    if hook is not None:
        hook(operation, path)


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Whatever the system says about a write becomes a StorageError that names the file."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(error.errno, error.strerror or str(error), str(path)) from error
