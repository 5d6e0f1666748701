"""One mutant on trial: a copy of the checkout with the fault in it, and processes forked from one that has torch."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.mutation.operators import Mutant
from tests.mutation.recorded import ROOT, Recorded

# What takes long to import and is nobody's mutant. gptlab itself must not be among what they import.
HEAVY = (
    "torch", "numpy", "pandas", "scipy.stats", "scipy.optimize", "matplotlib.pyplot", "omegaconf", "hydra",
    "rich.console", "rich.table", "jinja2", "hypothesis", "safetensors.torch", "transformers",
    "statsmodels.stats.multitest", "tiktoken", "_pytest.assertion.rewrite", "multiprocessing",
    "torch.utils.flop_counter",
)  # fmt: skip
STEP = 8.0  # recorded seconds of tests that one fork runs
AT_MOST = 30.0  # recorded seconds of tests that one mutant is given
COPIED = ("gptlab", "conf", "tests", "docs", "experiments", "pyproject.toml", "README.md", "constraints.txt",
          "Makefile", "CHANGELOG.md", "LICENSE", "CONTRIBUTING.md", ".gitignore")  # fmt: skip


def warm() -> None:
    """Import what every test needs, once."""
    import warnings

    warnings.simplefilter("ignore")
    for name in HEAVY:
        importlib.import_module(name)
    assert "gptlab" not in sys.modules


class Copy:
    """A copy of the checkout in a temporary folder, in which one file at a time carries a fault."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gptlab-mutants-"))
        self._stamp = int(time.time())
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, self.folder / name, ignore=shutil.ignore_patterns("outputs"))
            else:
                shutil.copy2(source, self.folder / name)

    def put(self, file: str, source: str) -> None:
        """Write one file of gptlab. Its time differs each time: no compiled file of another content fits it."""
        self._stamp += 2
        path = self.folder / "gptlab" / file
        path.write_text(source, encoding="utf-8")
        os.utime(path, (self._stamp, self._stamp))

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def chosen(tests: Sequence[Recorded], file: str, mutant: Mutant) -> list[Recorded]:
    """The tests that run the mutant's lines: those of its own room first, then the quickest. Up to a sum of seconds.

    What runs at import belongs to every test that runs the file. Tests of the room that run the file but not the line
    come last: a value that is kept (a cache) hides from them that they depend on it.
    """
    lines = set(range(mutant.line, mutant.last + 1))
    room = file.split("/")[0]

    def rank(test: Recorded) -> tuple[bool, bool, float]:
        return not lines & test.lines[file], f"/{room}/" not in test.file, test.seconds

    of_file = [test for test in tests if file in test.lines]
    hit = (
        of_file
        if mutant.at_import
        else [test for test in of_file if lines & test.lines[file] or rank(test)[1] is False]
    )
    if not any(lines & test.lines[file] for test in of_file) and not mutant.at_import:
        return []
    ranked, total, taken = sorted(hit, key=rank), 0.0, []
    for test in ranked:
        if total + test.seconds <= AT_MOST:
            total += test.seconds
            taken.append(test)
    return taken


def killer(copy: Copy, file: str, source: str, tests: Sequence[Recorded], sound: dict[str, bool]) -> str | None:
    """The first test that fails with this source of `file` and passes without it; None: all pass.

    `sound` keeps, over all mutants, which tests pass in a copy without a fault. Too long a time counts as a failure.
    """
    original = (ROOT / "gptlab" / file).read_text(encoding="utf-8")
    left = [test for test in tests if sound.get(test.name, True)]
    while True:
        copy.put(file, source)
        try:
            failed = next(filter(None, (_failing(copy, group) for group in _groups(left))), None)
        finally:
            copy.put(file, original)
        if failed is None:
            return None
        if failed not in sound:
            test = next(test for test in left if test.name == failed)
            sound[failed] = _failing(copy, [test]) is None
        if sound[failed]:
            return failed
        left = [test for test in left if test.name != failed]


def _failing(copy: Copy, group: Sequence[Recorded]) -> str | None:
    names = [test.name for test in group]
    report = copy.folder / "failed.txt"
    report.unlink(missing_ok=True)
    code = _forked(copy, names, 60 + 20 * sum(test.seconds for test in group))
    if code == 0:
        return None
    failed = report.read_text() if report.exists() else names[0]
    return failed if failed in names else names[0]


def _groups(tests: Sequence[Recorded]) -> Iterator[list[Recorded]]:
    """In order, a few seconds of tests at a time; a group's files are collected together."""
    group: list[Recorded] = []
    limit = 2.0
    for test in tests:
        group.append(test)
        if sum(each.seconds for each in group) > limit or len(group) >= 60:
            yield group
            group, limit = [], STEP
    if group:
        yield group


def _forked(copy: Copy, names: list[str], seconds: float) -> int | None:
    """The exit code of pytest in a child that has torch already; None where it took too long."""
    child = os.fork()
    if child == 0:
        _child(copy.folder, names)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _child(folder: Path, names: list[str]) -> None:
    """Never returns: pytest in the copy, its output to a file there, and out, past what the parent would do at exit."""
    code = 97
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored in the background
        output = os.open(folder / "last-output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        null = os.open(os.devnull, os.O_RDONLY)
        for stream, number in ((null, 0), (output, 1), (output, 2)):
            os.dup2(stream, number)
        os.chdir(folder)
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        mine = {str(ROOT), ""}
        sys.path[:] = [str(folder), *(path for path in sys.path if path not in mine)]
        for name in [name for name in sys.modules if name == "tests" or name.startswith("tests.")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        import pytest

        # Hydra is a plugin of pytest, and is here before it: no matter.
        quiet = [
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
            "--tb=line",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
        ]
        code = int(pytest.main(["-x", "-q", *quiet, *names], plugins=[_Report(folder / "failed.txt")]))
    finally:
        sys.stdout.flush()
        os._exit(code)


class _Report:
    """A plugin of pytest that writes which test failed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self._path.exists():
            self._path.write_text(report.nodeid)
