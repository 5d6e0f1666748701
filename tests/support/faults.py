"""Processes that die, and file systems that refuse, at a chosen operation; and what has to hold afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gptlab.store import atomic, files
from gptlab.store.atomic import is_temporary
from gptlab.store.states import altered, state_of

ROOT = Path(__file__).parents[2]


@contextmanager
def hooked(hook: Callable[[str, Path], None]) -> Iterator[None]:
    """Let `hook` see every operation on files within the body."""
    before, atomic.hook = atomic.hook, hook
    try:
        yield
    finally:
        atomic.hook = before


class Nth:
    """A hook that counts, and does something at operation N (from 1; never for 0)."""

    def __init__(self, number: int = 0, then: Callable[[Path], None] = lambda path: None, always: bool = False) -> None:
        self.count, self._number, self._then, self._always = 0, number, then, always

    def __call__(self, operation: str, path: Path) -> None:
        self.count += 1
        if self.count == self._number or (self._always and 0 < self._number < self.count):
            self._then(path)


def raises(number: int) -> Callable[[Path], None]:
    """What the system would say, as an OSError of this errno."""

    def refuse(path: Path) -> None:
        raise OSError(number, os.strerror(number), str(path))

    return refuse


def python(code: str, *arguments: object, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh process that can import gptlab and these helpers."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environ, capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def assert_sound(study: Path) -> dict[str, str]:
    """`finished` means complete, for every run folder, and no name that is not temporary is half-written."""
    states = {}
    for folder in sorted(path for path in study.glob("[!.]*-s*-*") if path.is_dir()):
        state = state_of(folder)
        assert state.name != "damaged", (folder, state)
        if state.name == "finished":
            assert altered(folder, state.result) == []
            assert {"config.yaml", "manifest.json"} <= set(state.result.hashes)
        for path in folder.glob("*.json"):
            if not is_temporary(path.name):
                files.read_json(path)
        states[folder.name] = state.name
    return states
