"""Time and memory against the bounds that gptlab promises. Run by `make bench`; wants an idle machine.

Each figure is printed as the median and the best of several tries, with the machine's load. The bounds hold for the
best: another process can only add to a time.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gptlab.config import Config, ModelConfig
from gptlab.model import build
from tests.support.book import book_gpt

pytestmark = pytest.mark.benchmark
BOOK_SIZES = (50257, 1024, 768, 12, 12)
ROOT = Path(__file__).parents[2]


def show(title: str, *rows: tuple[object, ...]) -> None:
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"\n{title}  ({os.cpu_count()} CPUs, {torch.get_num_threads()} threads, load {load})")
    for row in rows:
        print("  " + "  ".join(f"{cell:>10}" if i else f"{cell:<28}" for i, cell in enumerate(row)))


def in_turn(repeats: int, **work: Callable[[], object]) -> dict[str, list[float]]:
    """Seconds of each piece of work, tried in turn, so that a busy moment hits all of them alike."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, call in work.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return times


def median_and_best(seconds: Sequence[float]) -> tuple[str, str]:
    return f"{statistics.median(seconds):.2f} s", f"{min(seconds):.2f} s"


def python(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True, timeout=600)


# Runs a program and tells its wall time and the peak memory of its own process and children, on the last line.
MEASURE = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
done = subprocess.run(sys.argv[1:])
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print()
print(json.dumps({"code": done.returncode, "seconds": seconds, "peak": peak}))
"""


def test_paired_initialisation_at_124m() -> None:
    changes = {"reference": {}, "init=gpt2": {"init": "gpt2"}, "expansion=2": {"expansion": 2.0},
               "qkv_bias": {"qkv_bias": True}}  # fmt: skip
    configs = {name: Config(model=replace(ModelConfig(), **change)) for name, change in changes.items()}
    work: dict[str, Callable[[], object]] = {"the book's": lambda: book_gpt(123, *BOOK_SIZES)}
    work |= {name: (lambda config=config: build(config)) for name, config in configs.items()}
    in_turn(1, **work)
    times = in_turn(5, **work)
    ratios = {name: min(times[name]) / min(times["the book's"]) for name in times}
    rows = [(name, *median_and_best(seconds), f"{ratios[name]:.2f} x") for name, seconds in times.items()]
    show("initial weights of a 124M variant, rng=paired; bound 1.5 x the book's", *rows)
    assert max(ratios.values()) < 1.5


def test_help_does_not_wait_for_torch() -> None:
    times = in_turn(
        5,
        **{
            "python -c pass": lambda: python("-c", "pass"),
            "python -c 'import hydra'": lambda: python("-c", "import hydra"),
            "gptlab --help": lambda: python("-m", "gptlab", "--help"),
        },
    )
    heavy = "[m for m in ('torch', 'pandas', 'matplotlib', 'numpy') if m in sys.modules]"
    script = f"import sys; from gptlab.cli import main; main(['--help']); print({heavy})"
    loaded = python("-c", script).stdout.splitlines()[-1]
    rows = [(name, *median_and_best(seconds)) for name, seconds in times.items()]
    show("gptlab --help; bound 0.6 s, without torch", *rows, ("loaded of the heavy ones", loaded))
    assert loaded == "[]"
    assert min(times["gptlab --help"]) < 0.6


def test_help_costs_at_most_twice_the_import_of_hydra() -> None:
    """In the processor's time of the child, which another program on the machine hardly moves."""

    def spent(*arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        python(*arguments)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    words = {"python -c 'import hydra'": ("-c", "import hydra"), "gptlab --help": ("-m", "gptlab", "--help")}
    for arguments in words.values():  # once for the files that Python compiles
        spent(*arguments)
    tries = [{name: spent(*arguments) for name, arguments in words.items()} for _ in range(9)]
    hydra, own = (statistics.median(times[name] for times in tries) for name in words)
    rows = [(name, *median_and_best([times[name] for times in tries])) for name in words]
    show("gptlab --help; bound 2 x the import of Hydra", *rows, ("ratio of the medians", f"{own / hydra:.2f} x"))
    assert own < 2 * hydra


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_gpt3_175b_is_counted() -> None:
    script = r"""
import json, pathlib, re, time
import torch
# Not ru_maxrss: that begins with the peak of the process that started this one.
peak = lambda: 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path("/proc/self/status").read_text())[1])
before = peak()
from gptlab.config import Config, ModelConfig
from gptlab.probes.parameters import count
model = ModelConfig(context_length=2048, emb_dim=12288, n_heads=96, n_layers=96, qkv_bias=True, tie_weights=True)
seconds = []
for _ in range(2):
    start = time.perf_counter()
    counts = count(Config(model=model))
    seconds.append(time.perf_counter() - start)
print(json.dumps([counts["parameters"], *seconds, peak() - before, peak()]))
"""
    tries = [json.loads(python("-c", script).stdout) for _ in range(5)]
    assert {found[0] for found in tries} == {174_604_259_328}
    first, again, grown, peak = ([found[i] for found in tries] for i in (1, 2, 3, 4))
    show(
        "GPT-3 175B counted, in a fresh process after `import torch`; bounds 1 s and 1 GB",
        ("first count", *median_and_best(first)),
        ("second count", *median_and_best(again)),
        ("memory beyond torch", f"{max(grown) / 1e9:.3f} GB"),
        ("peak of the process", f"{max(peak) / 1e9:.3f} GB"),
    )
    assert min(first) < 1.0
    assert max(grown) < 1e9


def test_chapter4(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "gptlab", "experiment=chapter4", f"output_dir={tmp_path}"]
    lines = python("-c", MEASURE, *program, folder=tmp_path).stdout.splitlines()
    measured = json.loads(lines[-1])
    results = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("chapter4/*/*/result.json"))]
    show(
        "gptlab experiment=chapter4; bounds 120 s and 8 GB",
        ("runs", len(results)),
        ("whole process", f"{measured['seconds']:.1f} s"),
        ("peak memory", f"{measured['peak'] / 1e9:.2f} GB"),
        *((f"  {result['label']}", f"{result['seconds']:.1f} s") for result in results),
    )
    assert measured["code"] == 0
    assert len(results) >= 12
    assert {result["state"] for result in results} == {"finished"}
    assert measured["seconds"] < 120
    assert measured["peak"] < 8e9
