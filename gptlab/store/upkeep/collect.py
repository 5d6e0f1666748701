"""What can be cleared away: files of killed writers, locks of dead processes, and, when asked for, runs of a state."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gptlab.store import files, locks
from gptlab.store.atomic import is_temporary
from gptlab.store.find_runs import find_runs, is_run
from gptlab.store.states import STATES, state_of

_SET_ASIDE = re.compile(r".+\.damaged-\d{4}-.+")
_SETTLING = 3600  # seconds: a temporary file outside of a run's folder may belong to a write that is going on


@dataclass(frozen=True)
class Waste:
    """Something that can go: a path, what it is, and its size in bytes."""

    path: Path
    what: str
    size: int


def collect(folder: Path, states: tuple[str, ...] = ()) -> Iterator[Waste]:
    """What can go in `folder`. `states`: also the runs in one of these; a running one is never listed."""
    assert set(states) <= set(STATES) - {"running", "planned"}
    for path in _walk(folder):
        if is_temporary(path.name):
            if _is_orphan(path):
                yield Waste(path, "left by a killed writer", _size(path))
        elif path.name == locks.LOCK and locks.holder(path.parent) is None:
            yield Waste(path, "lock of a dead process", _size(path))
        elif "damaged" in states and _SET_ASIDE.fullmatch(path.name):
            yield Waste(path, "set aside as damaged", _size(path))
    if states:
        for run in find_runs(folder):
            state = state_of(run).name
            if state in states and not _SET_ASIDE.fullmatch(run.name):
                yield Waste(run, state, _size(run))


def clear(waste: Waste) -> bool:
    """Remove it; False when a process has taken the run meanwhile. OSError when it cannot be removed."""
    if waste.what in STATES:
        try:
            with locks.claim(waste.path.parent, lambda: waste.path):
                files.remove(waste.path)
        except locks.BusyError:
            return False
    else:
        files.remove(waste.path)
    return True


def _walk(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        for name in sorted([*folders, *names]):
            yield Path(place) / name
        folders[:] = sorted(name for name in folders if not is_temporary(name))


def _is_orphan(path: Path) -> bool:
    for folder in (path.parent, path.parent.parent):  # the run's, or that of its checkpoints
        if is_run(folder):
            return locks.holder(folder) is None
    try:
        return time.time() - path.lstat().st_mtime > _SETTLING
    except OSError:
        return False


def _size(path: Path) -> int:
    inside = [path] if not path.is_dir() or path.is_symlink() else [p for p in path.rglob("*") if not p.is_dir()]
    return sum(one.lstat().st_size for one in inside)
