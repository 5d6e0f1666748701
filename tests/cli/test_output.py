"""Standard output that is full, closed or not read to its end; environments that were made for something else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN = ("model=tiny", "ablation=none,relu", "probes=counting")


def gptlab(*arguments: str, folder: Path, to: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """`gptlab ...` by a shell, which may send its output anywhere, in an environment of this kind."""
    words = " ".join(f"'{word}'" for word in arguments)
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; '{sys.executable}' -m gptlab {words} {to}"],
        cwd=folder, capture_output=True, text=True, check=False, encoding="utf-8",
        env={**{k: v for k, v in os.environ.items() if not k.startswith("LC_")}, "PYTHONPATH": str(ROOT), **environ},
    )  # fmt: skip


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("command", [("ls",), ("plan", *RUN)])
def test_a_full_output_is_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = gptlab(*command, folder=tmp_path, to="> /dev/full")
    assert done.returncode == 1
    assert done.stderr == "gptlab: standard output: No space left on device.\n"


def test_a_closed_output_is_one_line(tmp_path: Path) -> None:
    done = gptlab("ls", folder=tmp_path, to=">&-")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "standard output" in done.stderr


@pytest.mark.parametrize("command", [("ls",), ("plan", *RUN)])
def test_a_reader_that_goes_away_is_no_failure(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = gptlab(*command, folder=tmp_path, to="| true")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_study_is_finished_though_nobody_can_read_its_table(tmp_path: Path) -> None:
    done = gptlab(*RUN, folder=tmp_path, to="> /dev/full")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert len(list(tmp_path.rglob("report.html"))) == 1 and len(list(tmp_path.rglob("result.json"))) == 2


ENVIRONMENTS = {
    "a notebook's backend": {"MPLBACKEND": "module://matplotlib_inline.backend_inline"},
    "the C locale": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "an output in ASCII": {"PYTHONIOENCODING": "ascii"},
    "a dumb terminal": {"TERM": "dumb", "COLUMNS": "20", "LINES": "2"},
    "colors everywhere": {"FORCE_COLOR": "1", "PY_COLORS": "1"},
    "warnings are errors": {"PYTHONWARNINGS": "error::DeprecationWarning:gptlab"},
    "optimised": {"PYTHONOPTIMIZE": "1"},
    "no home": {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent", "MPLCONFIGDIR": ""},
}


@pytest.mark.parametrize("name", [
    name if name in ("a notebook's backend", "the C locale") else pytest.param(name, marks=pytest.mark.slow)
    for name in ENVIRONMENTS
])  # fmt: skip
def test_a_study_in_whatever_environment(tmp_path: Path, name: str) -> None:
    """A prompt beyond ASCII, a generation, figures and the report."""
    prompt = "probes.generation.prompt=f\u00fcr"
    done = gptlab("model=tiny", "ablation=relu", prompt, folder=tmp_path, **ENVIRONMENTS[name])
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert list(tmp_path.rglob("report.html")) and list(tmp_path.rglob("*.svg"))
    assert "f\u00fcr" in next(tmp_path.rglob("config.yaml")).read_text(encoding="utf-8")
