"""Who is writing a run: a lock file in its folder that names a process.

The lock is made exclusively and whole. It counts for as long as that very process lives: its id, and the moment it
started, because ids are used again. A process in another container of this machine has no id here; of it the kernel
knows whether it still holds the file open. A process of another machine cannot be asked, so there the folder's last
sign of life decides, and a generous age; whoever reads of it is told which file to remove. No timer has to be fed, so a
run that computes for an hour without a word keeps its lock.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from gptlab.errors import GptlabError
from gptlab.store import files
from gptlab.store.atomic import StorageError
from gptlab.store.damage import UNREADABLE
from gptlab.store.names import now
from gptlab.store.one_at_a_time import one_at_a_time

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

LOCK = "lock.json"
GATE = ".claims"  # beside the run folders: claims are taken one at a time
FORGOTTEN = 24 * 3600  # seconds without a sign of life after which another machine's lock no longer counts
_SETTLING = 60  # seconds that a lock which cannot be read is given

# By this process (its id too, for a fork inherits this but not the locks): what the lock says, and its open file.
_held: dict[tuple[int, Path], tuple[bytes, int | None]] = {}


@dataclass(frozen=True)
class Holder:
    """The process that has a run."""

    pid: int
    host: str
    since: str
    lock: Path
    elsewhere: bool = False  # out of sight: only the age of its files tells whether it lives

    def __str__(self) -> str:
        known = f"process {self.pid} on {self.host} since {self.since}"
        if not self.elsewhere:
            return known
        minutes = _age(self.lock.parent) / 60
        last = f"{minutes:,.0f} minutes" if minutes < 120 else f"{minutes / 60:,.0f} hours"
        return f"{known}, last heard of {last} ago; if that one is gone, remove {self.lock}"


class BusyError(GptlabError):
    """Another process is writing this run."""


def holder(folder: Path) -> Holder | None:
    """The living process that has `folder`, if one has. Reads only."""
    lock = folder / LOCK
    try:
        content = files.read_json(lock)
        found = Holder(int(content["pid"]), str(content["host"]), str(content["since"]), lock)
        (boot, space), started, held = content["machine"], content["started"], content.get("held_open") is True
    except FileNotFoundError:
        return None
    except UNREADABLE:
        return Holder(0, "an unknown host", "?", lock, elsewhere=True) if _age(lock) < _SETTLING else None
    here = _machine()
    if found.host != platform.node() or space != here[1]:
        if held and boot and boot == here[0] and _let_go(lock):
            return None  # of another container on this machine, and ended since
        return replace(found, elsewhere=True) if _age(folder) < FORGOTTEN else None
    if boot != here[0] or started is None or _started(found.pid) != started:
        return None  # the machine, or the process, has ended since
    if found.pid == os.getpid() and _key(folder) not in _held:
        return None  # ours, and let go: an interrupt came before the file was gone
    return found


@contextmanager
def claim(study: Path, choose: Callable[[], Path]) -> Iterator[Path]:
    """Own a run folder in `study` while the body runs. `choose` says which, while nobody else can choose or claim.

    `study` must be there: what was taken away meanwhile is not made anew. BusyError, with the holder, when another
    living process has it. What its dead owner left half-written is swept.
    """
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
        if folder is not None and _key(folder) in _held.keys() - before:
            _release(folder)


def _take(folder: Path) -> None:
    # A new folder has its lock from the start: one without either, or a result, is that of a run that crashed.
    lock, own = folder / LOCK, _own(held_open=fcntl is not None)
    if not files.create_folder(folder, LOCK, own) and not files.create(lock, own):
        other = holder(folder)
        if other is None:
            files.remove(lock)
        if other or not files.create(lock, own):
            words = f"{folder.name} is being written by {other or 'another process'}"
            raise BusyError(
                words if other and other.elsewhere else f"{words}; if that one is gone, remove {lock}",
                code="run-is-busy",
                pid=other.pid if other else None,
                lock=lock,
            )
    _held[_key(folder)] = own, None
    handle = _hold_open(lock)
    if handle is None and fcntl is not None:  # a file system without such locks: the file must not say otherwise
        own = _own(held_open=False)
        files.write_bytes(lock, own)
    _held[_key(folder)] = own, handle


def check_held(folder: Path) -> None:
    """StorageError unless the folder, claimed by this process, is where it was and still its own."""
    own, _ = _held[_key(folder)]
    try:
        same = (folder / LOCK).read_bytes() == own
    except OSError:
        same = False
    if not same:
        raise StorageError(errno.ENOENT, "the folder was moved or taken away while its run went on", str(folder))


def _own(held_open: bool) -> bytes:
    pid = os.getpid()
    content = {
        "pid": pid, "host": platform.node(), "machine": _machine(), "started": _started(pid), "since": now(),
        "held_open": held_open,
    }  # fmt: skip
    return json.dumps(content).encode()


def _hold_open(lock: Path) -> int | None:
    """The lock's open file, locked: the kernel lets go when this process ends. None where it has no such locks."""
    handle = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (OSError, AttributeError):
        os.close(handle)
        return None
    return handle


def _let_go(lock: Path) -> bool:
    """Whether no process holds the file open any more."""
    try:
        handle = os.open(lock, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except (OSError, AttributeError):
        return False
    finally:
        os.close(handle)


def _release(folder: Path) -> None:
    own, handle = _held.get(_key(folder), (b"", None))
    with suppress(OSError):  # a lock that cannot be taken away counts no longer than its process lives
        if (folder / LOCK).read_bytes() == own:  # not that of whoever made the folder anew
            files.remove(folder / LOCK)
    if handle is not None:
        os.close(handle)
    _held.pop(_key(folder), None)


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
