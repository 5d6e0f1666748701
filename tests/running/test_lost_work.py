"""What is taken away, fills up, diverges or is asked for twice while it runs: nothing is lost, hidden or made anew."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gptlab.cli import main
from gptlab.planning.plan import expand
from gptlab.running.launch import look_again, run_jobs
from gptlab.running.queue import open_study
from gptlab.store import locks
from gptlab.store.files import read_json
from gptlab.store.states import state_of
from gptlab.training import checkpoint, loop, refused_writes
from gptlab.training.history import read
from gptlab.training.measured import Found, Step
from gptlab.training.watch import Watch
from tests.support.faults import ROOT, assert_sound
from tests.support.training import toy, trained

TRAIN = ["model=toy_lesson", "data=sentences", "probes=counting", "train.budget=12", "train.checkpoint_every=3",
         "evaluation.every=4", "train.log_every=3"]  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def at_step(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], object]) -> None:
    """Let something happen just before a step of a training, once."""
    step, done = loop.Training._step, []

    def acting(self: Any, at: int) -> Any:
        if at == number and not done:
            done.append(act())
        return step(self, at)

    monkeypatch.setattr(loop.Training, "_step", acting)


@pytest.mark.parametrize("number", [2, 10])
def test_a_study_that_is_taken_away_is_not_made_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    at_step(monkeypatch, number, lambda: shutil.rmtree("outputs/runs"))
    assert main([*TRAIN, "seed=1,2"]) == 1
    assert not Path("outputs/runs").exists()
    err = capsys.readouterr().err
    assert "0 of 2 runs finished, 1 crashed, 1 planned" in err and "Traceback" not in err


def test_a_study_that_is_moved_goes_on_where_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_step(monkeypatch, 7, lambda: os.rename("outputs", "elsewhere"))
    assert main(TRAIN) == 1
    assert not Path("outputs/runs").exists()
    assert main([*TRAIN, "output_dir=elsewhere"]) == 0
    (run,) = Path("elsewhere/runs").glob("*-s123-*")
    assert any("resumed from step" in note for note in state_of(run).result.notes)


def test_a_run_whose_folder_is_another_ones_by_now_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    study, plan = open_study(expand(TRAIN))
    run = study / plan.runs[0].folder

    def replaced() -> None:
        shutil.rmtree(run)
        run.mkdir()

    at_step(monkeypatch, 11, replaced)
    assert run_jobs(plan, study) == ["crashed"]
    assert not (run / "result.json").exists()


def test_a_file_that_is_lost_meanwhile_is_no_finished_run(monkeypatch: pytest.MonkeyPatch) -> None:
    study, plan = open_study(expand([*TRAIN, "probes.parameters={}"]))
    run = study / plan.runs[0].folder
    at_step(monkeypatch, 5, lambda: (run / "config.yaml").unlink())
    assert run_jobs(plan, study) == ["crashed"]
    assert run_jobs(plan, study) == ["finished"]


def test_a_full_disk_during_a_checkpoint_stops_the_sweep_and_goes_on_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full:
        def write(self, content: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def full(optimizers: object, file: refused_writes.Noting) -> None:
        file._file = Full()  # type: ignore[assignment]
        torch.serialization.save(optimizers, file)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        assert main([*TRAIN, "seed=1,2"]) == 1
    err = capsys.readouterr().err
    assert "disk full (" in err and "0 of 2 runs finished, 1 crashed, 1 planned" in err
    assert main([*TRAIN, "seed=1,2"]) == 0


# A loss that is no number


def poison(monkeypatch: pytest.MonkeyPatch, at: int, norm: bool = False) -> None:
    """From step `at` on (counted from 1) the loss, or the gradient, is not finite."""
    step = loop.Training._step

    def poisoned(self: Any, number: int) -> Step:
        found = step(self, number)
        if number + 1 < at:
            return found
        bad = torch.tensor(math.nan)
        return found._replace(norm=bad) if norm else found._replace(loss=bad)

    monkeypatch.setattr(loop.Training, "_step", poisoned)


@pytest.mark.parametrize("norm", [False, True])
def test_the_last_good_checkpoint_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, norm: bool) -> None:
    poison(monkeypatch, at=5, norm=norm)
    config = toy("train.checkpoint_every=2", "train.log_every=1000", "evaluation.every=1000", steps=2000)
    found, _ = trained(config, tmp_path / "run")
    assert (found.outcome, found.reason) == ("diverged", "not finite from step 5")
    assert found.metrics["steps"] == 6, "noticed when the next checkpoint was due"
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step_00000004"]
    saved = checkpoint.load(tmp_path / "run" / "checkpoints" / names[0], loop.identity(config))
    assert all(bool(weight.isfinite().all()) for weight in saved.weights.values())
    assert read(tmp_path / "run")[-1]["step"] == 6


def test_weights_that_are_no_numbers_are_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = loop.Training._step

    def broken(self: Any, number: int) -> Step:
        found = step(self, number)
        if number == 3:
            with torch.no_grad():
                next(self.model.parameters()).fill_(math.inf)
        return found

    monkeypatch.setattr(loop.Training, "_step", broken)
    found, _ = trained(toy("train.checkpoint_every=2", "train.log_every=1000", "evaluation.every=1000"), tmp_path)
    assert found.reason == "not finite from step 4"
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_00000002"]


def test_tables_say_from_which_step_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    poison(monkeypatch, at=7)
    assert main(TRAIN) == 1
    assert main(["ls"]) == 0
    assert "diverged" in (out := capsys.readouterr().out) and "not finite from step 7" in out
    assert read_json(next(Path("outputs/runs").glob("*-s123-*")) / "result.json")["error"] == "not finite from step 7"


def test_one_step_beyond_the_numbers_is_forgotten_when_the_next_is_not() -> None:
    watch, found = Watch(), Found()
    for number, value in enumerate([1.0, math.inf, 1.0, 1.0], start=1):
        watch.add(number, Step(torch.tensor(1.0), torch.tensor(value), 0.1, {}))
    watch.look(found)
    assert found.finite and found.broke_at is None
    for number in (5, 6):
        watch.add(number, Step(torch.tensor(1.0), torch.tensor(math.nan), 0.1, {}))
        watch.look(found)
    assert not found.finite and found.broke_at == 5


# The same command, many times at once


@pytest.mark.parametrize("number", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_equal_commands_at_once_all_end_well(here: Path, number: int) -> None:
    command = [sys.executable, "-m", "gptlab", "model=tiny", "probes=counting", "seed=1,2,3,4,5,6"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    processes = [subprocess.Popen(command, cwd=here, env=environ, stderr=subprocess.PIPE, text=True,
                                  stdout=subprocess.DEVNULL) for _ in range(number)]  # fmt: skip
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * number, said
    assert len(list(here.rglob("result.json"))) == 6 and len(assert_sound(here / "outputs" / "runs")) == 6


def test_who_has_nothing_to_do_waits_for_the_others(here: Path) -> None:
    study, plan = open_study(expand(["model=tiny", "probes=counting"]))
    run = study / plan.runs[0].folder
    code = ("import sys, time; from pathlib import Path; from gptlab.store.locks import claim\n"
            "study, run = map(Path, sys.argv[1:])\nwith claim(study, lambda: run):\n"
            "    print('held', flush=True); time.sleep(1)")  # fmt: skip
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, str(study.absolute()), str(run.absolute())]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        said: list[str] = []
        assert look_again(plan, study, ["running"], said.append) == ["crashed"]
        assert len(said) == 1 and "another process" in said[0]


def test_nobody_waits_for_a_process_that_cannot_be_seen(here: Path) -> None:
    study, plan = open_study(expand(["model=tiny", "probes=counting"]))
    run = study / plan.runs[0].folder
    run.mkdir()
    lock = {"pid": 1, "host": "elsewhere", "machine": ["x", "y"], "started": "1", "since": "noon"}
    (run / locks.LOCK).write_text(json.dumps(lock))
    assert look_again(plan, study, ["running"], pytest.fail) == ["running"]
    assert str(run / locks.LOCK) in state_of(run).reason and "last heard of" in state_of(run).reason


def test_a_container_on_this_machine_is_asked_by_the_lock_it_holds_open(here: Path) -> None:
    """Its process has no id here, but the kernel knows whether the file is held."""
    run = here / "run"
    with locks.claim(here, lambda: run):
        content = read_json(run / locks.LOCK)
        foreign = {**content, "host": "container", "machine": [content["machine"][0], "pid:[1]"]}
        with open(run / locks.LOCK, "r+") as file:  # in place: the open file stays locked
            file.write(json.dumps(foreign))
            file.truncate()
        found: list[object] = []
        asking = threading.Thread(target=lambda: found.append(locks.holder(run)))
        asking.start()
        asking.join()
        assert found and found[0] is not None
        held = locks._held[locks._key(run)]
        assert held[1] is not None
        os.close(held[1])  # as the kernel does when a process ends
        locks._held[locks._key(run)] = held[0], None
        assert locks.holder(run) is None
