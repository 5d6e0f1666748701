"""One process at a time: the gate that claims of run folders go through."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gptlab.store.atomic import step, storage

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

_TRIES = 1000  # so many others, each gone with the file that was waited for, do not come in a row
_HASTY = 100  # tries without a pause of a millisecond before them


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Keep other processes, and threads, out of the body. `path` is an empty file, there for as long as that takes.

    The kernel opens the gate when its holder dies. Where the file system has no such locks, the body just runs: be safe
    without, too.
    """
    handle = _locked(path)
    try:
        yield
    finally:
        try:
            with suppress(OSError):
                step("remove", path)
                os.unlink(path)  # before the lock is let go: who waits for this file sees that it is gone
        finally:
            os.close(handle)


def _locked(path: Path) -> int:
    """A handle with the lock on the very file that `path` names: the one that was waited for may be gone by now.

    Some network file systems never say that two looks saw one file: there the last handle has to do.
    """
    for number in range(1, _TRIES + 1):
        if number > _HASTY:
            time.sleep(0.001)
        with storage(path):
            step("gate", path)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if fcntl is not None:
                with suppress(OSError):
                    fcntl.flock(handle, fcntl.LOCK_EX)
            with suppress(OSError):
                if os.path.samestat(os.fstat(handle), os.stat(path)):
                    return handle
            if number == _TRIES:
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
    raise AssertionError("the last try returns")
