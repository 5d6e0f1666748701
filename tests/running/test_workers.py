"""Several workers: the same numbers, a killed one costs its run only, and stopping is orderly."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gptlab.planning.plan import PlannedRun, expand
from gptlab.running.launch import run_jobs
from gptlab.running.queue import open_study
from gptlab.store.states import state_of

ROOT = Path(__file__).parents[2]
PLUGIN = '''
"""Components that do what nobody wants: they end, or hold up, the process that builds a model with them."""
import os, signal, sys, time
from pathlib import Path
from gptlab import register


@register("activation", "test_trouble")
class Trouble:
    """Does what `kind` says."""

    def __new__(cls, kind: str = "none"):
        from torch import nn

        if kind == "raise":
            raise ValueError("no luck")
        if kind == "exit":
            sys.exit(0)
        if kind == "hard_exit":
            os._exit(0)
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "terminate":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(30)
        if kind == "memory":
            raise MemoryError
        if kind == "sleep":
            Path("asleep").touch()
            time.sleep(60)
        return nn.GELU()
'''


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trouble_plugin.py").write_text(PLUGIN)
    return tmp_path


def gptlab(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "gptlab", *arguments]
    return subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )  # fmt: skip


def numbers(study: Path) -> dict[str, Any]:
    """All that is measured, of every run, as it stands in the files, without times."""
    found: dict[str, Any] = {}
    for path in sorted(study.glob("*/result.json")):
        found[path.parent.name] = json.loads(path.read_text())["metrics"]
        for name in ("layers.csv", "tensors.csv", "generation.json"):
            found[f"{path.parent.name}/{name}"] = (path.parent / name).read_bytes()
    return found


class Told:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.results: dict[int, dict[str, Any]] = {}
        self.most, self._running = 0, 0

    def started(self, number: int, run: PlannedRun) -> None:
        self._running += 1
        self.most = max(self.most, self._running)

    def ended(self, number: int, run: PlannedRun, result: dict[str, Any]) -> None:
        self._running -= 1
        self.results[number] = result


def test_two_workers_measure_the_same_bit_for_bit() -> None:
    """P8: alone, beside another, and in another order."""
    words = ["model=tiny", "ablation=relu,no_shortcut", "seed=1,2", "output_dir={}"]
    told = Told()
    study, plan = open_study(expand([*words[:3], "output_dir=two", "workers=2"]))
    assert run_jobs(plan, study, told) == ["finished"] * 6
    assert told.most == 2 and set(told.results) == set(range(1, 7))
    study, plan = open_study(expand([*words[:3], "output_dir=one"]))
    assert run_jobs(plan, study) == ["finished"] * 6
    study, plan = open_study(expand(["model=tiny", "ablation=no_shortcut,relu", "seed=2,1", "output_dir=turned"]))
    assert run_jobs(plan, study) == ["finished"] * 6
    assert numbers(Path("one/runs")) == numbers(Path("two/runs")) == numbers(Path("turned/runs"))
    assert len(numbers(Path("one/runs"))) == 24


def test_every_way_to_end_is_recorded_and_costs_its_run_only() -> None:
    """P10, in one sweep. `none` after the others shows that it went on."""
    kinds = ["raise", "exit", "hard_exit", "kill", "terminate", "memory", "none"]
    words = ["model=tiny", "plugins=[trouble_plugin]", "model.activation=test_trouble", "probes.shapes=null",
             "probes.parameters=null", "probes.generation=null", "workers=2",
             f"model.options.activation.kind={','.join(kinds)}"]  # fmt: skip
    sys.path.insert(0, os.getcwd())
    try:
        study, plan = open_study(expand(words))
        told = Told()
        states = dict(zip(kinds, run_jobs(plan, study, told), strict=True))
    finally:
        sys.path.remove(os.getcwd())
    assert states == {
        "raise": "failed", "exit": "failed", "hard_exit": "crashed", "kill": "crashed", "terminate": "interrupted",
        "memory": "failed", "none": "finished",
    }  # fmt: skip
    found = {kind: state_of(study / run.folder) for kind, run in zip(kinds, plan.runs, strict=True)}
    assert {kind: state.name for kind, state in found.items()} == states
    folders = {kind: study / run.folder for kind, run in zip(kinds, plan.runs, strict=True)}
    assert found["raise"].reason == "ValueError: no luck"
    assert "Traceback" in json.loads((folders["raise"] / "result.json").read_text())["traceback"]
    assert found["exit"].reason == "SystemExit: 0"
    assert "killed by SIGKILL (out of memory?)" in found["kill"].reason
    assert "exit code 0" in found["hard_exit"].reason
    assert "SIGTERM" in found["terminate"].reason


def wait_for(test: Any, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


SLEEPING = ["model=tiny", "plugins=[trouble_plugin]", "model.activation=test_trouble", "probes.shapes=null",
            "probes.parameters=null", "probes.generation=null", "model.options.activation.kind=none,sleep"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "number"), [("1", signal.SIGTERM), ("2", signal.SIGINT), ("2", signal.SIGTERM)])
def test_being_asked_to_stop(here: Path, workers: str, number: signal.Signals) -> None:
    process = gptlab(*SLEEPING, f"workers={workers}")
    wait_for(lambda: (here / "asleep").exists() and list(here.rglob("result.json")))
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "1 of 2 runs finished, 1 interrupted" in err and "The same command goes on from here." in err
    assert "Traceback" not in err and "interrupted" in out
    (state,) = [s for s in map(state_of, (here / "outputs" / "runs").glob("*-s123-*")) if s.name != "finished"]
    assert state.name == "interrupted"
    assert not list(here.rglob("lock.json"))


@pytest.mark.slow
def test_a_second_ctrl_c_forces(here: Path) -> None:
    (here / "trouble_plugin.py").write_text(
        PLUGIN.replace("time.sleep(60)", "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)")
    )
    process = gptlab(*SLEEPING, "workers=2")
    wait_for(lambda: (here / "asleep").exists() and list(here.rglob("result.json")))
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(1.0)
    assert process.poll() is None  # it waits for the worker, which does not listen
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "1 crashed" in err


@pytest.mark.slow
def test_workers_end_in_order_when_their_supervisor_is_killed(here: Path) -> None:
    process = gptlab(*SLEEPING, "workers=2")
    wait_for(lambda: (here / "asleep").exists() and list(here.rglob("result.json")))
    process.kill()
    process.communicate(timeout=60)
    folders = list((here / "outputs" / "runs").glob("*-s123-*"))
    wait_for(lambda: sorted(state_of(folder).name for folder in folders) == ["finished", "interrupted"])


def test_progress_of_several_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from gptlab.cli.progress import Progress

    plan = expand(["model=tiny", "seed=1,2"])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    progress = Progress(plan, 2)
    progress.started(1, plan.runs[0])
    progress.started(2, plan.runs[1])
    progress.ended(2, plan.runs[1], {"state": "finished", "metrics": {"loss": 1.5}, "seconds": 2.0})
    lines = capsys.readouterr().err.split("\r\x1b[2K")[1:]
    assert lines == [
        "[1/2] baseline seed=1  running ...",
        "running: baseline seed=1, baseline seed=2 ...",
        "[2/2] baseline seed=2  loss 1.5  2.0 s  about 0:00 left\n",
        "[1/2] baseline seed=1  running ...",
    ]


def test_progress_of_a_training(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from gptlab.cli.progress import Progress
    from gptlab.training.progress import Tick

    plan = expand(["model=tiny", "train.budget=10"])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    progress = Progress(plan, 1)
    progress.started(1, plan.runs[0])
    progress.ticked(Tick(3, 10, 2.5, 1000.0, 7.0))
    metrics = {"initial_loss": 5.5, "final_loss": 7.5}
    progress.ended(1, plan.runs[0], {"state": "diverged", "error": None, "metrics": metrics, "seconds": 2.0})
    assert capsys.readouterr().err.split("\r\x1b[2K")[2:] == [
        f"[1/1] {plan.runs[0].label}  step 3/10  loss 2.5  1,000 tokens/s  0:07 left",
        f"[1/1] {plan.runs[0].label}  diverged  loss 5.5 -> 7.5  2.0 s\n",
    ]


def test_a_log_has_a_line_per_run_with_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gptlab.cli import progress as module
    from gptlab.training.progress import Tick

    plan = expand(["model=tiny", "seed=1,2,3"])
    clock = iter([0.0, 30.0, 61.0, 61.0, 90.0, 90.0, 90.0, 120.0, 120.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    progress = module.Progress(plan, todo=2)  # one of the three was there already
    progress.started(2, plan.runs[1])
    for step in (1, 2):  # the first comes too early for a line
        progress.ticked(Tick(step, 10, 2.5, 1000.0, None))
    for number in (2, 3):
        progress.ended(number, plan.runs[number - 1], {"state": "finished", "metrics": {"loss": 1.5}, "seconds": 2.0})
    assert capsys.readouterr().err.splitlines() == [
        "gptlab: [2/3] baseline seed=2  step 2/10  loss 2.5  1,000 tokens/s",
        "gptlab: [2/3] baseline seed=2  loss 1.5  2.0 s  about 1:30 left",
        "gptlab: [3/3] baseline seed=3  loss 1.5  2.0 s",
    ]


@pytest.mark.parametrize(("order", "expected"), [("seeds", [1, 1, 2, 2]), ("variants", [1, 2, 1, 2])])
def test_the_order_of_the_runs(order: str, expected: list[int]) -> None:
    from gptlab.running.decisions import survey
    from gptlab.running.queue import Queue

    plan = expand(["model=tiny", "ablation=none,relu", "seed=1,2", f"order={order}", "probes=counting"])
    queue = Queue(plan, Path("outputs"), survey(plan, Path("outputs")))
    taken = [queue.take() for _ in plan.runs]
    assert [run.seed for run in taken if run] == expected
    assert {run.id for run in taken if run} == {run.id for run in expand(["model=tiny", "ablation=none,relu",
        "seed=1,2", "probes=counting"]).runs}  # fmt: skip  # no id depends on it


def test_threads_belong_to_a_run_and_not_to_the_process() -> None:
    import torch

    before = torch.get_num_threads()
    study, plan = open_study(expand(["model=tiny", "threads=2", "probes=counting"]))
    run_jobs(plan, study)
    assert torch.get_num_threads() == before
    assert state_of(study / plan.runs[0].folder).result.threads == 2


def test_other_threads_other_last_bits_within_a_tolerance() -> None:
    study, plan = open_study(expand(["model=tiny", "model.emb_dim=128"]))
    run_jobs(plan, study)
    other, _ = open_study(expand(["model=tiny", "model.emb_dim=128", "threads=2", "output_dir=two"]))
    run_jobs(expand(["model=tiny", "model.emb_dim=128", "threads=2", "output_dir=two"]), other)
    one, two = (state_of(next(s.glob("*-s123-*"))).result.metrics for s in (study, other))
    assert one.keys() == two.keys()
    assert all(one[key] == pytest.approx(two[key], rel=1e-5) for key in one)


@pytest.mark.slow
def test_a_table_can_be_read_back(here: Path) -> None:
    process = gptlab("model=tiny", "probes=counting", "seed=1,2", "workers=2")
    process.communicate(timeout=90)
    assert process.returncode == 0
    with (here / "outputs" / "runs" / "runs.csv").open() as file:
        assert [row["state"] for row in csv.DictReader(file)] == ["finished", "finished"]
