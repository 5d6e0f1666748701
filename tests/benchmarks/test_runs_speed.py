"""How fast runs are listed, started and shared out. On an otherwise idle machine: `make bench`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gptlab.planning.plan import expand
from gptlab.running.launch import run_jobs
from gptlab.running.queue import open_study
from gptlab.show.listing import list_runs, print_rows

pytestmark = pytest.mark.benchmark
ROOT = Path(__file__).parents[2]


def store(folder: Path, runs: int) -> Path:
    """A study with many runs of 1.5 KB each, and a plan that has them all."""
    study = folder / "many"
    study.mkdir(parents=True)
    rows = []
    for number in range(runs):
        run_id = f"{number:064x}"[::-1]
        name = f"relu+n_layers={number % 50}-s{number}-{run_id[:8]}"
        result = {
            "schema": 1, "id": run_id, "label": f"relu+n_layers={number % 50}", "seed": number, "state": "finished",
            "error": None, "traceback": None, "seconds": 1.5, "threads": 1, "notes": [], "warnings": [],
            "metrics": {"parameters": 163009536, "loss": 10.9 + number * 1e-6, "grad_norm": 5.8,
                        **{f"parameters/part_{k}": k * 1000 for k in range(10)}},
            "code": {"gptlab": "0" * 64, "torch": "2.13.0"},
            "artifacts": {f"file_{k}.csv": f"{k:064x}" for k in range(8)},
        }  # fmt: skip
        (study / name).mkdir()
        (study / name / "result.json").write_text(json.dumps(result))
        rows.append({"id": run_id, "label": result["label"], "seed": number, "folder": name, "overrides": [],
                     "baseline_id": None, "delta": {}})  # fmt: skip
    plan = {"schema": 1, "study": "many", "question": "", "command": [], "baseline": "", "primary_metric": "loss"}
    (study / "plan.json").write_text(json.dumps({**plan, "runs": rows}))
    return folder


def best_of(times: int, action: Callable[[], object]) -> float:
    found = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        found.append(time.perf_counter() - start)
    return min(found)


def test_ten_thousand_runs_list_in_a_second(tmp_path: Path) -> None:
    def listed(folder: Path) -> None:
        with open(os.devnull, "w") as nowhere:
            print_rows(list_runs(folder), folder, file=nowhere)

    few, many = store(tmp_path / "few", 1_000), store(tmp_path / "many", 10_000)
    first, second = best_of(5, lambda: listed(few)), best_of(3, lambda: listed(many))
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gptlab", "ls", str(many)]
    whole = best_of(3, lambda: subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=True))
    print(f"\nls: 1,000 runs {first:.3f} s, 10,000 runs {second:.3f} s, as a command {whole:.3f} s; {load()}")
    assert whole < 1.0
    assert second < 13 * first, "linear"


def test_a_sweep_costs_little_beyond_its_work(tmp_path: Path) -> None:
    """Planning, folder, lock, manifest and hashes, in one process and in a worker; the work itself is left out."""
    start = time.perf_counter()
    plan = expand(["model=tiny", "probes=counting", "seed=range(0,40)", f"output_dir={tmp_path}"])
    planned = time.perf_counter() - start
    study, plan = open_study(plan)
    from gptlab.running import execute

    work = []
    original = execute._measure

    def measured(*arguments: object) -> object:
        begin = time.perf_counter()
        found = original(*arguments)  # type: ignore[arg-type]
        work.append(time.perf_counter() - begin)
        return found

    execute._measure = measured  # type: ignore[assignment]
    try:
        start = time.perf_counter()
        assert set(run_jobs(plan, study)) == {"finished"}
        whole = time.perf_counter() - start
    finally:
        execute._measure = original
    per_run = (planned + whole - sum(work)) / 40
    print(f"\noverhead per run: {per_run * 1000:.1f} ms ({planned / 40 * 1000:.1f} ms of it planning); {load()}")
    assert per_run < 0.15


def test_two_workers_do_nearly_twice_as_much(tmp_path: Path) -> None:
    """40 toy runs, without the start of the processes, which is paid once."""
    words = ["model=tiny", "seed=range(0,40)", "probes.generation.max_new_tokens=60"]

    def timed(workers: int) -> float:
        study, plan = open_study(expand([*words, f"workers={workers}", f"output_dir={tmp_path / str(workers)}"]))
        watch = Ends()
        run_jobs(plan, study, watch)
        return watch.pace()

    one, two = timed(1), timed(2)
    print(
        f"\n40 toy runs: {one * 1000:.0f} ms a run alone, {two * 1000:.0f} ms with two workers: x{one / two:.2f}; {load()}"  # noqa: E501
    )
    assert one / two >= 1.8


class Ends:
    """Remembers when runs ended; the first of each worker is left out."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def started(self, number: int, run: object) -> None: ...

    def ended(self, number: int, run: object, result: object) -> None:
        self.times.append(time.perf_counter())

    def pace(self) -> float:
        skip = 4
        return (self.times[-1] - self.times[skip]) / (len(self.times) - 1 - skip)


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
