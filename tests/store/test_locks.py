from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gptlab.store import locks
from gptlab.store.locks import LOCK, claim, holder
from gptlab.store.one_at_a_time import one_at_a_time
from tests.support.faults import hooked, python
from tests.support.refusals import refused


def lock_of(pid: int, **changes: Any) -> str:
    content = {
        "pid": pid, "host": locks.platform.node(), "machine": locks._machine(), "started": locks._started(pid),
        "since": "2026-01-01",
    }  # fmt: skip
    return json.dumps({**content, **changes})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    return path


@pytest.fixture
def sleeper():  # type: ignore[no-untyped-def]
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_a_claim_is_exclusive_and_ends(folder: Path) -> None:
    with claim(folder.parent, lambda: folder) as claimed:
        assert claimed == folder
        assert holder(folder) is not None
        with refused("run-is-busy", pid=os.getpid()), claim(folder.parent, lambda: folder):
            pass
        assert holder(folder) is not None, "the one that came in vain did not let go of it"
    assert holder(folder) is None
    with claim(folder.parent, lambda: folder):
        pass


def test_a_living_process_keeps_its_lock(folder: Path, sleeper: Any) -> None:
    (folder / LOCK).write_text(lock_of(sleeper.pid))
    os.utime(folder / LOCK, (0, 0))  # however old it looks: no timer has to be fed
    os.utime(folder, (0, 0))
    busy = refused("run-is-busy", pid=sleeper.pid, lock=folder / LOCK)
    with busy, claim(folder.parent, lambda: folder):
        pass


def test_a_killed_process_loses_it_at_once_even_before_it_is_buried(folder: Path, sleeper: Any) -> None:
    (folder / LOCK).write_text(lock_of(sleeper.pid))
    sleeper.kill()
    deadline = time.monotonic() + 10
    while holder(folder) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert holder(folder) is None  # it is a zombie: nobody has waited for it
    with claim(folder.parent, lambda: folder):
        pass


def test_a_process_id_that_is_used_again_is_another_process(folder: Path, sleeper: Any) -> None:
    (folder / LOCK).write_text(lock_of(sleeper.pid, started="12345"))
    assert holder(folder) is None


def test_a_reboot_ends_every_lock(folder: Path, sleeper: Any) -> None:
    (folder / LOCK).write_text(lock_of(sleeper.pid, machine=["another boot", locks._machine()[1]]))
    assert holder(folder) is None


@pytest.mark.parametrize("change", [{"host": "elsewhere"}, {"machine": ["x", "pid:[1]"]}])
def test_another_machine_is_believed_until_the_folder_has_been_silent_for_long(
    folder: Path, change: dict[str, Any]
) -> None:
    (folder / LOCK).write_text(lock_of(1, **change))
    found = holder(folder)
    assert found is not None and found.pid == 1
    long_ago = time.time() - locks.FORGOTTEN - 10
    (folder / "metrics.jsonl").write_text("")  # a sign of life
    os.utime(folder / LOCK, (long_ago, long_ago))
    os.utime(folder, (long_ago, long_ago))
    assert holder(folder) is not None
    os.utime(folder / "metrics.jsonl", (long_ago, long_ago))
    assert holder(folder) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"pid": "x"}', "\0\xff"])
def test_a_lock_that_cannot_be_read_counts_for_a_minute(folder: Path, content: str) -> None:
    (folder / LOCK).write_text(content)
    assert holder(folder) is not None
    os.utime(folder / LOCK, (0, 0))
    assert holder(folder) is None
    with claim(folder.parent, lambda: folder):
        assert json.loads((folder / LOCK).read_text())["pid"] == os.getpid()


def test_an_interrupt_between_taking_and_holding_does_not_lock_oneself_out(folder: Path) -> None:
    (folder / LOCK).write_text(lock_of(os.getpid()))
    assert holder(folder) is None


def test_what_a_dead_owner_left_half_written_is_swept(folder: Path) -> None:
    (folder / ".result.json.123.0123abcd.tmp").write_text("half")
    (folder / "keep.txt").write_text("x")
    with claim(folder.parent, lambda: folder):
        assert sorted(os.listdir(folder)) == ["keep.txt", LOCK]


def test_asking_for_the_holder_writes_nothing(folder: Path) -> None:
    (folder / LOCK).write_text(lock_of(2**22 - 1))
    before = sorted(os.listdir(folder)), (folder / LOCK).stat().st_mtime_ns
    assert holder(folder) is None
    assert before == (sorted(os.listdir(folder)), (folder / LOCK).stat().st_mtime_ns)


GATED = """
import os, sys, time
from pathlib import Path
from gptlab.store.one_at_a_time import one_at_a_time
folder = Path(sys.argv[1])
children = []
for k in range(8):
    pid = os.fork()
    if pid == 0:
        for _ in range(200):
            with one_at_a_time(folder / "gate"):
                os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))  # fails when there are two
                os.unlink(folder / "inside")
        os._exit(0)
    children.append(pid)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
"""


def test_the_gate_lets_one_in_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Also when those who wait hold a file that the one before them has taken away."""
    assert python(GATED, tmp_path).stdout.strip() == str([0] * 8)
    assert os.listdir(tmp_path) == []


def test_the_gate_opens_where_files_have_no_lasting_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on some network file systems: the body runs, after a second, and no handle is left open."""
    tries: list[str] = []
    monkeypatch.setattr(os.path, "samestat", lambda one, other: False)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with hooked(lambda operation, path: tries.append(operation)), one_at_a_time(tmp_path / "gate"):
        pass
    assert set(tries[:-1]) == {"gate"} and 100 < len(tries) < 10_000
    assert tries[-1] == "remove" and os.listdir(tmp_path) == []
    assert before in (0, len(os.listdir("/proc/self/fd")) if before else 0)


RACE = """
import json, os, sys, time
from pathlib import Path
from gptlab.running import execute
from gptlab.store import files
from gptlab.store.atomic import is_temporary
from gptlab.running.queue import open_study, perform
from gptlab.planning.plan import expand
root, rounds, log = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])

def measure(config, *rest):
    with open(log, "ab", buffering=0) as file:
        file.write(f"{root.name} {config.seed}\\n".encode())
    time.sleep(0.002)

execute._measure = measure
plan = expand(["model=tiny", "probes=counting", "seed=range(0,8)", f"output_dir={root}"])
for number in range(rounds):
    study = root / str(number)
    study.mkdir(parents=True)
    if number % 2:  # a dead process has them all
        for run in plan.runs:
            (study / run.folder).mkdir(parents=True)
            lock = {"pid": 2**22 - 1, "host": os.uname().nodename, "machine": ["", ""], "started": "1", "since": ""}
            from gptlab.store import locks
            (study / run.folder / "lock.json").write_text(json.dumps({**lock, "machine": locks._machine()}))
    start = time.time() + 0.05
    children = []
    for k in range(16):
        pid = os.fork()
        if pid == 0:
            try:
                runs = plan.runs[k % 8:] + plan.runs[:k % 8] if k % 3 else plan.runs
                time.sleep(max(0, start - time.time()))
                states = [perform(run, study)["state"] for run in runs]
                os._exit(0 if set(states) <= {"finished", "running"} else 5)
            except BaseException:
                import traceback; traceback.print_exc()
                os._exit(6)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert codes == [0] * 16, codes
    lines = log.read_text().split()
    seeds = [int(word) for word in lines[1::2]][8 * number:]
    assert sorted(seeds) == list(range(8)), seeds
    from tests.support.faults import assert_sound
    states = assert_sound(study)
    assert list(states.values()) == ["finished"] * 8, states
    assert not (study / ".claims").exists()
    assert not [n for f in study.iterdir() for n in (os.listdir(f) if f.is_dir() else []) if is_temporary(n)]
print("ok")
"""


@pytest.mark.parametrize("rounds", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_sixteen_processes_race_for_eight_runs(tmp_path: Path, rounds: int) -> None:
    done = python(RACE, tmp_path / "store", rounds, tmp_path / "log", timeout=1200)
    assert done.stdout.strip() == "ok"
