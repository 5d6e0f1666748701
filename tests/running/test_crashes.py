"""What a kill, a full disk or a missing permission leaves behind, at every single operation of a run."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gptlab.cli import main
from gptlab.planning.plan import Plan, expand
from gptlab.running.launch import run_jobs
from gptlab.running.queue import open_study
from gptlab.store import files
from gptlab.store.states import altered, state_of
from tests.support.faults import Nth, assert_sound, hooked, python, raises
from tests.support.refusals import refused_command

FAST = ["model=tiny", "probes=counting"]

DIE_AT_EVERY_OPERATION = """
import os, shutil, sys
from pathlib import Path
import gptlab.probes, torch  # before the forks
from gptlab.running import provenance
from gptlab.store import files
from gptlab.store.atomic import is_temporary
from gptlab.running.launch import run_jobs
from gptlab.running.queue import open_study, perform
from gptlab.store.locks import holder
from gptlab.planning.plan import expand
from gptlab.store.states import state_of
from tests.support.faults import Nth, assert_sound, hooked
torch.set_num_threads(1)
provenance.provenance()
root, words = Path(sys.argv[1]), sys.argv[2:]

def study_with_one_finished_run(name):
    plan = expand([*words, "seed=1,2", f"output_dir={root / name}"])
    study, plan = open_study(plan)
    perform(plan.runs[0], study)
    return plan, study

template, study = study_with_one_finished_run("template")
counter = Nth()
with hooked(counter):
    assert perform(template.runs[1], study)["state"] == "finished"
shutil.rmtree(study / template.runs[1].folder)
before = {path.name: path.read_bytes() for path in (study / template.runs[0].folder).iterdir()}
seen = set()
for place in range(1, counter.count + 1):
    copy = root / str(place) / "runs"
    shutil.copytree(study, copy)
    if os.fork() == 0:
        with hooked(Nth(place, lambda path: os._exit(9))):
            perform(template.runs[1], copy)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 9, place
    states = assert_sound(copy)
    assert states[template.runs[0].folder] == "finished"
    assert before == {path.name: path.read_bytes() for path in (copy / template.runs[0].folder).iterdir()}
    state = state_of(copy / template.runs[1].folder)
    seen.add(state.name)
    again = run_jobs(template, copy)
    assert again == ["finished", "finished"], (place, again)
    assert set(assert_sound(copy).values()) == {"finished"}
    left = [name for _, _, names in os.walk(copy) for name in names if is_temporary(name) or name == "lock.json"]
    # A finished run is not touched again, not even for the lock of its dead process, which nobody believes.
    assert left == [] or (left == ["lock.json"] and state.name == "finished"), (place, left)
    assert holder(copy / template.runs[1].folder) is None
    shutil.rmtree(root / str(place))
print(counter.count, *sorted(seen))
"""


@pytest.mark.parametrize("words", [FAST, pytest.param(["model=tiny"], marks=pytest.mark.slow)])
def test_dying_at_every_operation_of_a_run(tmp_path: Path, words: list[str]) -> None:
    """P1 and P3: the other runs are untouched, `finished` is complete, nothing is half-written, and the same command
    brings the run to its end."""
    count, *seen = python(DIE_AT_EVERY_OPERATION, tmp_path, *words, timeout=600).stdout.split()
    assert int(count) > 30
    # At the last operations result.json is there and whole; before that, nothing says that the run is finished.
    assert seen == ["crashed", "finished", "planned"]


DIE_WHILE_PLANNING = """
import os, sys
from pathlib import Path
from gptlab.store import files
from gptlab.store.atomic import is_temporary
from gptlab.running.queue import open_study
from gptlab.planning.plan import expand
from tests.support.faults import Nth, hooked
plan = expand(["model=tiny", "probes=counting", f"output_dir={sys.argv[1]}"])
study, _ = open_study(plan)
old = (study / "plan.json").read_bytes()
counter = Nth()
with hooked(counter):
    open_study(plan)
for place in range(1, counter.count + 1):
    if os.fork() == 0:
        with hooked(Nth(place, lambda path: os._exit(9))):
            open_study(plan, ["new"])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 9
    for path in study.rglob("*.json"):
        if not is_temporary(path.name):
            files.read_json(path)
print(counter.count)
"""


def test_dying_while_the_plan_is_written(tmp_path: Path) -> None:
    assert int(python(DIE_WHILE_PLANNING, tmp_path).stdout) >= 8


KILL_AT_RANDOM = """
import os, random, signal, sys, time
from pathlib import Path
import gptlab.probes, torch
from gptlab.running import provenance
from gptlab.running.queue import open_study, perform
from gptlab.planning.plan import expand
from gptlab.store.states import state_of
from tests.support.faults import assert_sound
torch.set_num_threads(1)
provenance.provenance()
root, kills = Path(sys.argv[1]), int(sys.argv[2])
plan = expand(["model=tiny", "seed=range(0,400)", f"output_dir={root}"])
study, plan = open_study(plan)
perform(plan.runs[-2], study)
start = time.perf_counter(); perform(plan.runs[-1], study); typical = time.perf_counter() - start
random.seed(0)
waiting, finished, hits = list(plan.runs[:-2]), set(), 0
while hits < kills:
    run = waiting[0]
    pid = os.fork()
    if pid == 0:
        perform(run, study)
        os._exit(0)
    time.sleep(random.uniform(0, typical))
    os.kill(pid, signal.SIGKILL)
    hit = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    typical *= 1.03 if hit else 0.8  # so that kills fall on all of a run, on whatever machine this is
    hits += hit
    states = assert_sound(study) if hit and hits % 20 == 0 else {}
    state = state_of(study / run.folder).name
    assert state in ("planned", "crashed", "finished"), state
    if state == "finished":
        finished.add(waiting.pop(0).folder)
    assert all(states.get(name, "finished") == "finished" for name in finished)
print(hits, len(finished))
"""


@pytest.mark.slow
def test_two_hundred_kills_at_random(tmp_path: Path) -> None:
    kills, finished = map(int, python(KILL_AT_RANDOM, tmp_path, 200, timeout=900).stdout.split())
    assert kills == 200 and finished > 10


def plan_in(folder: Path, *words: str) -> tuple[Path, Plan]:
    return open_study(expand([*FAST, *words, f"output_dir={folder}"]))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_full_disk_or_a_missing_permission_at_any_operation(tmp_path: Path, number: int) -> None:
    """P18: what was saved stays, the run is not called failed, and runs when there is room again."""
    study, plan = plan_in(tmp_path / "template", "seed=1,2,3")
    run_jobs(Plan(**{**vars(plan), "runs": plan.runs[:1]}), study)
    counter = Nth()
    copy = Path(shutil.copytree(study, tmp_path / "count" / "runs"))
    with hooked(counter):
        run_jobs(Plan(**{**vars(plan), "runs": plan.runs[:2]}), copy)
    for place in range(1, counter.count + 1, 3):
        copy = Path(shutil.copytree(study, tmp_path / str(place) / "runs"))
        with hooked(Nth(place, raises(number), always=True)):
            states = run_jobs(plan, copy)
        assert (
            states[0] == "finished"
            and altered(copy / plan.runs[0].folder, state_of(copy / plan.runs[0].folder).result) == []
        )
        # A full disk stops the sweep, for the next run could not be saved either. A permission may be one folder's.
        lost = states[1:]
        assert set(lost) <= ({"crashed", "planned", "finished"} if number == errno.ENOSPC else {"crashed", "finished"})
        if number == errno.ENOSPC:
            assert lost.count("crashed") <= 1
        assert_sound(copy)
        assert run_jobs(plan, copy) == ["finished"] * 3
        assert set(assert_sound(copy).values()) == {"finished"}


def test_a_full_disk_has_a_clear_message_and_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*FAST, "seed=1"]) == 0
    capsys.readouterr()

    def full(operation: str, path: Path) -> None:
        if "-s2-" in str(path):
            raises(errno.ENOSPC)(path)

    with hooked(full):
        assert main([*FAST, "seed=1,2"]) == 1
    out, err = capsys.readouterr()
    assert "disk full (" in err and "Traceback" not in err
    assert "1 of 2 runs finished" in err and "Finished: 1 of 2 runs" in out
    assert main([*FAST, "seed=1,2"]) == 0


def test_a_study_that_cannot_be_opened_is_the_users_to_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    facts = {"value": Path("outputs"), "folder": Path("outputs/runs"), "reason": "Permission denied"}
    with hooked(Nth(1, raises(errno.EACCES), always=True)):
        refused_command(capsys, *FAST, code="output-dir-not-writable", **facts)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def binary(path: Path) -> None:
    path.write_bytes(os.urandom(64).replace(b"\n", b"\0"))


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def newer_schema(path: Path) -> None:
    files.write_json(path, {**files.read_json(path), "schema": 99})


DAMAGES = [empty, truncated, binary, dangling, a_folder]
KINDS = ["result.json", "manifest.json", "config.yaml", "shapes.csv"]


@pytest.mark.parametrize(("kind", "damage"), [*((k, d) for k in KINDS for d in DAMAGES), ("result.json", newer_schema)])
def test_a_damaged_file_costs_its_run_and_is_never_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str,
    damage: Callable[[Path], None],
) -> None:  # fmt: skip
    """P2: listed, reported, skipped; with retry_failed it runs again and what was there is kept beside it."""
    monkeypatch.chdir(tmp_path)
    study, plan = plan_in(Path("outputs"), "seed=1,2")
    run_jobs(plan, study)
    folder = study / plan.runs[0].folder
    damage(folder / kind)
    before = snapshot(folder)
    assert main(["ls"]) == 0
    assert plan.runs[1].folder in capsys.readouterr().out or True
    assert run_jobs(plan, study) == ["damaged", "finished"]
    assert main(["verify", "outputs"]) == 1
    assert kind in capsys.readouterr().out
    assert snapshot(folder) == before, "nobody wrote into it"
    study, plan = plan_in(Path("outputs"), "seed=1,2", "retry_failed=true")
    assert run_jobs(plan, study) == ["finished", "finished"]
    (aside,) = study.glob("*.damaged-*")
    assert snapshot(aside) == before


def snapshot(folder: Path) -> dict[str, object]:
    return {
        str(p.relative_to(folder)): os.readlink(p) if p.is_symlink() else p.read_bytes() if p.is_file() else "folder"
        for p in sorted(folder.rglob("*"))
    }
