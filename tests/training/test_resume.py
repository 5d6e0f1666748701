"""A killed run goes on as if nothing had happened: to the bit, wherever it was killed."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from gptlab.config import Config
from gptlab.running.execute import execute
from gptlab.running.stopping import stoppable
from gptlab.store.atomic import StorageError
from gptlab.training import checkpoint
from gptlab.training.history import History
from gptlab.training.loop import Training
from gptlab.training.measured import Step
from tests.support.training import numbers, toy, trained, weights_hash

ROOT = Path(__file__).resolve().parents[2]
BUSY = (
    "model.drop_rate=0.2",
    "train.checkpoint_every=3",
    "train.schedule=cosine",
    "train.warmup=3",
    "train.log_every=2",
)


class Killed(BaseException):
    """The process is gone."""


class Kill:
    """Dies at operation number `at` on the disk, leaving it half done; from then on nothing reaches the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
        self.at, self.count = at, 0
        for owner, name in ((os, "fsync"), (os, "rename"), (os, "replace")):
            monkeypatch.setattr(owner, name, self.operation(getattr(owner, name)))
        for owner, name in ((shutil, "rmtree"), (Path, "unlink")):  # what cleaning up would do
            monkeypatch.setattr(owner, name, self.operation(getattr(owner, name), quiet=True))
        monkeypatch.setattr(checkpoint, "save_file", self.operation(checkpoint.save_file, half=_half_of_second))
        monkeypatch.setattr(torch, "save", self.operation(torch.save, half=_half_of_second))
        monkeypatch.setattr(History, "append", self.operation(History.append, half=_half_a_line))

    def operation(
        self, real: Callable[..., Any], half: Callable[..., None] | None = None, quiet: bool = False
    ) -> Callable[..., Any]:
        def act(*arguments: Any, **named: Any) -> Any:
            if self.count >= self.at and quiet:
                return None
            self.count += 1
            if self.count < self.at:
                return real(*arguments, **named)
            if self.count == self.at and half:
                real(*arguments, **named)
                half(*arguments)
            raise Killed

        return act


def _half_of_second(_: Any, target: Any) -> None:
    path = target if isinstance(target, Path) else Path(target.name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _half_a_line(history: History, *_: Any) -> None:
    path = Path(history._file.name)
    path.write_text(path.read_text()[:-20])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, str, list[dict[str, Any]], dict[str, Any]]:
    """The run that nobody interrupts: config, hash of its weights, its lines, its metrics."""
    folder = tmp_path_factory.mktemp("whole")
    config = toy(*BUSY)
    found, model = trained(config, folder)
    return config, weights_hash(model), numbers(folder), without_clock(found.metrics)


def without_clock(metrics: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if name not in ("train_seconds", "tokens_per_second")}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """As `execute` has it: another number of threads adds up in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def killed_at(operation: int, config: Config, folder: Path) -> bool:
    """Whether the run got so far that it could be killed there."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        Kill(monkeypatch, operation)
        try:
            trained(config, folder)
        except Killed:
            return True
    return False


def expect_the_same_in_the_end(whole: Any, folder: Path) -> None:
    config, weights, lines, metrics = whole
    found, model = trained(config, folder, resume=True)
    assert weights_hash(model) == weights
    assert numbers(folder) == lines
    assert without_clock(found.metrics) == metrics
    assert not list((folder / "checkpoints").glob(".*"))


def test_killed_here_and_there(whole: Any, tmp_path: Path) -> None:
    for operation in (1, 12, 20):
        assert killed_at(operation, whole[0], tmp_path / str(operation))
        expect_the_same_in_the_end(whole, tmp_path / str(operation))


@pytest.mark.slow
def test_killed_at_each_operation_on_the_disk(whole: Any, tmp_path: Path) -> None:
    operation = 1
    while killed_at(operation, whole[0], tmp_path / str(operation)):
        expect_the_same_in_the_end(whole, tmp_path / str(operation))
        operation += 1
    assert operation > 40  # four checkpoints with three files each, and the lines between them


@pytest.fixture
def heard() -> Iterator[None]:
    """Ctrl-C reaches Python, also in tests that were started in the background, where a shell has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize(("step", "number"), [(1, signal.SIGINT), (5, signal.SIGINT), (8, signal.SIGTERM)])
def test_asked_to_stop_it_ends_its_step_and_saves(whole: Any, tmp_path: Path, step: int, number: int) -> None:
    config, *_ = whole
    real = Training._step

    def asked(training: Training, done: int) -> Step:
        if done + 1 == step:
            os.kill(os.getpid(), number)
        return real(training, done)

    with pytest.MonkeyPatch.context() as monkeypatch, stoppable():
        monkeypatch.setattr(Training, "_step", asked)
        with pytest.raises(KeyboardInterrupt):
            trained(config, tmp_path)
    assert (tmp_path / "checkpoints" / f"step_{step:08d}").is_dir()
    expect_the_same_in_the_end(whole, tmp_path)


@pytest.mark.usefixtures("heard")
def test_asked_twice_it_stops_at_once(whole: Any, tmp_path: Path) -> None:
    config, *_ = whole

    def asked(training: Training, done: int) -> Step:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the second one was to end this")

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Training, "_step", asked)
        with pytest.raises(KeyboardInterrupt):
            trained(config, tmp_path)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not list(tmp_path.glob("checkpoints/step_*"))


def test_killed_twice(whole: Any, tmp_path: Path) -> None:
    config, *_ = whole
    assert killed_at(22, config, tmp_path)
    with pytest.MonkeyPatch.context() as monkeypatch:
        Kill(monkeypatch, 15)
        with pytest.raises(Killed):
            trained(config, tmp_path, resume=True)
    expect_the_same_in_the_end(whole, tmp_path)


def test_probes_on_the_way_are_not_lost(tmp_path: Path) -> None:
    config = toy(*BUSY, "probes=default", "train.probe_every=2")
    found, _ = trained(config, tmp_path / "whole")
    assert killed_at(25, config, tmp_path / "killed")
    again, _ = trained(config, tmp_path / "killed", resume=True)
    assert again.notes and again.notes[0].startswith("resumed from step")
    assert (again.tables, again.documents["samples"]) == (found.tables, found.documents["samples"])


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
def test_other_optimizers_resume_too(tmp_path: Path, optimizer: str) -> None:
    config = toy(*BUSY, f"train.optimizer={optimizer}")
    _, model = trained(config, tmp_path / "whole")
    assert killed_at(25, config, tmp_path / "killed")
    _, again = trained(config, tmp_path / "killed", resume=True)
    assert weights_hash(model) == weights_hash(again)


def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(whole: Any, tmp_path: Path) -> None:
    assert killed_at(30, whole[0], tmp_path)
    old, new = sorted((tmp_path / "checkpoints").glob("step_*"))
    file = new / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    found, model = trained(whole[0], tmp_path, resume=True)
    assert weights_hash(model) == whole[1] and numbers(tmp_path) == whole[2]
    assert found.warnings == [
        f"checkpoint not used: {new.name}: model.safetensors does not match its checksum: it is damaged"
    ]
    assert found.notes == [f"resumed from step {int(old.name.removeprefix('step_'))}"]


def test_without_a_usable_checkpoint_the_run_starts_anew(whole: Any, tmp_path: Path) -> None:
    assert killed_at(30, whole[0], tmp_path)
    for folder in (tmp_path / "checkpoints").glob("step_*"):
        (folder / "meta.json").write_text("{}")
    found, model = trained(whole[0], tmp_path, resume=True)
    assert weights_hash(model) == whole[1] and len(found.warnings) == 2
    assert "started from the beginning" in found.notes[0]


def test_not_resuming_starts_anew_whatever_is_there(whole: Any, tmp_path: Path) -> None:
    assert killed_at(30, whole[0], tmp_path)
    found, model = trained(whole[0], tmp_path)
    assert weights_hash(model) == whole[1] and numbers(tmp_path) == whole[2] and found.notes == []


def test_a_finished_run_resumes_to_itself(whole: Any, tmp_path: Path) -> None:
    trained(whole[0], tmp_path)
    expect_the_same_in_the_end(whole, tmp_path)


def test_execute_resumes_and_says_so(tmp_path: Path) -> None:
    config = toy(*BUSY, "probes=default")
    expected = execute(config, tmp_path / "whole")
    assert killed_at(25, config, tmp_path / "killed")
    result = execute(config, tmp_path / "killed", resume=True)
    assert result["state"] == "finished" and result["outcome"] == "ok"
    assert result["notes"][-1].startswith("resumed from step")
    assert without_clock(result["metrics"]) == without_clock(expected["metrics"])
    files = {name for name in result["artifacts"] if name.startswith("checkpoints/")}
    assert {Path(name).name for name in files} == {"model.safetensors", "state.pt", "meta.json"}
    assert json.loads((tmp_path / "killed" / "manifest.json").read_text())["data_sha256"]


@pytest.mark.parametrize("writer", ["save_file", "rename"])
def test_a_full_disk_is_no_verdict_on_the_variant(
    whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    real = os.rename

    def full(*arguments: Any, **__: Any) -> None:
        if writer == "save_file":
            raise SafetensorError('IoError(Os { code: 28, message: "No space left on device" }) (os error 28)')
        if "step_" not in str(arguments[0]):
            return real(*arguments)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint if writer == "save_file" else os, writer, full)
        with pytest.raises(StorageError) as caught:
            execute(whole[0], tmp_path)
    assert caught.value.errno == errno.ENOSPC and str(caught.value).startswith("disk full (")
    assert not (tmp_path / "result.json").exists()
    expect_the_same_in_the_end(whole, tmp_path)


@pytest.mark.slow
def test_killed_by_the_system_at_any_time(tmp_path: Path) -> None:
    overrides = ["model=toy_lesson", "data=sentences", "probes=counting", "model.drop_rate=0.1", "train.budget=400",
                 "train.checkpoint_every=20", "evaluation.every=25"]  # fmt: skip
    script = (
        "import sys; from pathlib import Path; from gptlab import compose; from gptlab.running.execute import execute; "
        "folder = Path(sys.argv[1]); "
        "execute(compose(sys.argv[2:]), folder, resume=folder.exists())"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def start(folder: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", script, str(folder), *overrides], env=environment)

    assert start(tmp_path / "whole").wait() == 0
    clock, kills = random.Random(0), 0
    folder = tmp_path / "killed"
    while not (folder / "result.json").exists():
        child = start(folder)
        while child.poll() is None and not (folder / "metrics.jsonl").exists():
            time.sleep(0.01)
        time.sleep(clock.uniform(0.0, 0.4))
        if child.poll() is None and kills < 5:
            child.send_signal(signal.SIGKILL)
            kills += 1
        child.wait()
    assert kills >= 1
    assert numbers(folder) == numbers(tmp_path / "whole")
    one, other = (sorted((path / "checkpoints").glob("step_*"))[-1] for path in (folder, tmp_path / "whole"))
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
