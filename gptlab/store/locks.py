"""Who is writing a run: a lock file in its folder that names a process.

The lock is made exclusively and whole. It counts for as long as that very process lives: its id, and the moment it
started, because ids are used again. A process of another machine cannot be asked, so there the folder's last sign of
life decides, and a generous age. No timer has to be fed, so a run that computes for an hour without a word keeps its
lock.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gptlab.errors import GptlabError
from gptlab.store import files
from gptlab.store.clock import now
from gptlab.store.mutex import one_at_a_time

LOCK = "lock.json"
GATE = ".claims"  # beside the run folders: claims are taken one at a time
FORGOTTEN = 24 * 3600  # seconds without a sign of life after which another machine's lock no longer counts
_SETTLING = 60  # seconds that a lock which cannot be read is given

_held: set[tuple[int, Path]] = set()  # by this process; its id too, for a fork inherits the set but not the locks


@dataclass(frozen=True)
class Holder:
    """The process that has a run."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


class BusyError(GptlabError):
    """Another process is writing this run."""


def holder(folder: Path) -> Holder | None:
    """The living process that has `folder`, if one has. Reads only."""
    lock = folder / LOCK
    try:
        content = files.read_json(lock)
        found = Holder(int(content["pid"]), str(content["host"]), str(content["since"]))
        machine, started = content["machine"], content["started"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return Holder(0, "an unknown host", "?") if _age(lock) < _SETTLING else None
    if found.host != platform.node() or machine[1:] != _machine()[1:]:
        return found if _age(folder) < FORGOTTEN else None
    if machine[0] != _machine()[0] or started is None or _started(found.pid) != started:
        return None  # the machine, or the process, has ended since
    if found.pid == os.getpid() and _key(folder) not in _held:
        return None  # ours, and let go: an interrupt came before the file was gone
    return found


@contextmanager
def claim(study: Path, choose: Callable[[], Path]) -> Iterator[Path]:
    """Own a run folder in `study` while the body runs. `choose` says which, while nobody else can choose or claim.

    BusyError, with the holder, when another living process has it. What its dead owner left half-written is swept.
    """
    files.make_folder(study)
    folder, before = None, set(_held)
    try:
        with one_at_a_time(study / GATE):
            folder = choose()
            before, new = set(_held), not folder.exists()
            _take(folder)
            if new:
                files.sweep(study, f"{folder.name}.")
        files.sweep(folder)
        yield folder
    finally:
        # Not a flag set after the claim: an interrupt may come between the two.
        if folder is not None and _key(folder) in _held - before:
            _release(folder)


def _take(folder: Path) -> None:
    # A new folder has its lock from the start: one without either, or a result, is that of a run that crashed.
    if not files.create_folder(folder, LOCK, _own()) and not files.create(folder / LOCK, _own()):
        other = holder(folder)
        if other is None:
            files.remove(folder / LOCK)
        if other or not files.create(folder / LOCK, _own()):
            raise BusyError(
                f"{folder.name} is being written by {other or 'another process'}. "
                f"If that one is gone, remove {folder / LOCK}.",
                code="run-is-busy",
                name=folder.name,
            )
    _held.add(_key(folder))


def _own() -> bytes:
    pid = os.getpid()
    content = {
        "pid": pid, "host": platform.node(), "machine": _machine(), "started": _started(pid), "since": now(),
    }  # fmt: skip
    return json.dumps(content).encode()


def _release(folder: Path) -> None:
    with suppress(OSError):  # a lock that cannot be taken away counts no longer than its process lives
        files.remove(folder / LOCK)
    _held.discard(_key(folder))


def _key(folder: Path) -> tuple[int, Path]:
    return os.getpid(), folder.resolve()


def _age(path: Path) -> float:
    """Seconds since anything at `path` was last written; infinite when there is nothing."""
    try:
        paths = [path, *(entry for entry in path.iterdir())] if path.is_dir() else [path]
        return time.time() - max(one.lstat().st_mtime for one in paths)
    except (OSError, ValueError):
        return float("inf")


@cache
def _machine() -> list[str]:
    """What tells this boot of this machine, and this space of process ids, from others."""
    boot, space = "", ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    return [boot, space]


def _started(pid: int) -> str | None:
    """When the process started, in the system's own words; None when there is none, or only its remains."""
    if os.path.isdir("/proc/self"):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in ("Z", "X") else fields[19]
    try:
        shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return shown.stdout.strip() or None
