"""Which lines of gptlab each fast test runs, and how long it takes: recorded once, kept while nothing changes.

As a program, with a file of tests and a path to write to: runs the tests under a trace and writes JSON.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".mutation"
CALLS = 30  # of one function by one test: what later calls run is hardly new, and a trace is slow


@dataclass(frozen=True)
class Recorded:
    """One test: its name for pytest, seconds (under the trace), and the lines it runs by file of gptlab."""

    name: str
    seconds: float
    lines: dict[str, frozenset[int]]

    @property
    def file(self) -> str:
        """The file of tests that it is in."""
        return self.name.partition("::")[0]


def recorded(files: list[Path]) -> list[Recorded]:
    """The tests of these files; each file anew where it, or gptlab, or what tests share has changed."""
    shared = _hash([*ROOT.glob("gptlab/**/*.py"), *ROOT.glob("tests/support/*.py"), *ROOT.glob("conf/**/*.yaml")])
    found = []
    for file in files:
        name = file.relative_to(ROOT).as_posix()
        path = CACHE / "lines" / f"{name.replace('/', '-')}-{_hash([file])[:8]}-{shared[:8]}.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            started = time.time()
            subprocess.run(
                [sys.executable, "-m", "tests.mutation.recorded", name, str(path)],
                cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, check=True,
            )  # fmt: skip
            print(f"{name}: recorded in {time.time() - started:.0f} s", file=sys.stderr)
        for test, (seconds, lines) in json.loads(path.read_text()).items():
            found.append(Recorded(test, seconds, {key: frozenset(value) for key, value in lines.items()}))
    return found


def _hash(paths: list[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(paths))).hexdigest()


class Recorder:
    """A plugin of pytest. What the set-up of a test runs may be shared (a fixture of the module): every test's."""

    def __init__(self) -> None:
        self.tests: dict[str, tuple[float, dict[str, set[int]]]] = {}
        self.shared: dict[str, set[int]] = defaultdict(set)
        self._package = str(ROOT / "gptlab") + os.sep
        self._lines: dict[str, set[int]] = defaultdict(set)
        self._calls: Counter[CodeType] = Counter()

    def pytest_collection(self) -> None:
        """Import all of gptlab, so that the first test does not pay for it."""
        for module in pkgutil.walk_packages([str(ROOT / "gptlab")], "gptlab."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._lines = self.shared
        try:
            return (yield from self._traced())
        finally:
            self._lines = defaultdict(set)
            self._calls.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        started = time.perf_counter()
        try:
            return (yield from self._traced())
        finally:
            self.tests[item.nodeid] = (time.perf_counter() - started, self._lines)

    def _traced(self) -> Generator[None, Any, Any]:
        sys.settrace(self._call)
        threading.settrace(self._call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(self._package):
            return None
        self._calls[frame.f_code] += 1
        if self._calls[frame.f_code] > CALLS:
            return None
        seen = self._lines[file.removeprefix(self._package)]
        seen.add(frame.f_lineno)

        def line(frame: FrameType, event: str, argument: object) -> Any:
            seen.add(frame.f_lineno)
            return line

        return line


def main(file: str, path: str) -> None:
    recorder = Recorder()
    pytest.main([file, "-q", "-p", "no:cacheprovider", "-p", "no:xdist"], plugins=[recorder])
    result = {}
    for name, (seconds, lines) in recorder.tests.items():
        both = {
            key: sorted(lines.get(key, set()) | recorder.shared.get(key, set())) for key in {*lines, *recorder.shared}
        }
        result[name] = (round(seconds, 3), both)
    temporary = Path(path).with_suffix(".part")
    temporary.write_text(json.dumps(result))
    temporary.rename(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
