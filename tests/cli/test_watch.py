"""A sweep looked at from outside while it goes on: from its files, without torch, until it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gptlab.cli import main
from gptlab.cli.daily import watch
from gptlab.show.watching import cell, view
from gptlab.store import locks
from gptlab.store.study_plan import load_plan
from gptlab.store.upkeep.sweep_now import RunNow, Sweep, last_line, look
from tests.support.refusals import refused_command
from tests.support.seeded import Arm, make_seeded

LINE = {"step": 30, "tokens": 480, "seconds": 6.0, "metrics": {"train_loss": 2.5, "grad_norm": 1.0}}


def folder_of(study: Path, label: str, seed: int) -> Path:
    (entry,) = [run for run in load_plan(study).runs if (run.label, run.seed) == (label, seed)]
    return study / entry.folder


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Baseline: three seeds ended. ReLU: one ended, one failed, one is planned."""
    arms = [
        Arm("none", {1: 3.1, 2: 3.2, 3: 3.3}),
        Arm("relu", {1: 3.05, 2: 3.0, 3: 3.0}, {"activation": "relu"}, states={2: "failed", 3: "planned"}),
    ]
    return make_seeded(tmp_path, arms)


@contextmanager
def going_on(
    study: Path, label: str, seed: int, line: dict[str, Any] = LINE, budget: Any = (100, "steps")
) -> Iterator[Path]:
    """The run has this process for its owner, and has written a history."""
    folder = folder_of(study, label, seed)
    with locks.claim(study, lambda: folder):
        train = {"budget": budget[0], "budget_unit": budget[1]}
        (folder / "manifest.json").write_text(json.dumps({"config": {"train": train}}))
        (folder / "metrics.jsonl").write_text(json.dumps({"step": 10}) + "\n" + json.dumps(LINE) + "\n" + '{"step": 3')
        yield folder


def test_what_runs_is_known_by_its_last_whole_line_and_its_budget(study: Path) -> None:
    with going_on(study, "relu", 3):
        sweep = look(study)
    run = sweep.runs[-1]
    assert (run.label, run.seed, run.state, run.value, run.share, run.seconds) == ("relu", 3, "running", 2.5, 0.3, 6.0)
    assert run.seconds_left == pytest.approx(14.0)
    assert (sweep.count("finished"), sweep.count("failed"), sweep.is_over) == (4, 1, False)
    assert sweep.metric == "final_loss" and sweep.runs[0].value == 3.1


@pytest.mark.parametrize(
    ("budget", "share"),
    [
        ((960, "tokens"), 0.5),
        ((12.0, "seconds"), 0.5),
        ((15, "steps"), 1.0),
        ((0, "steps"), None),
        ((5, "flops"), None),
    ],
)
def test_each_kind_of_budget_has_its_share(study: Path, budget: Any, share: float | None) -> None:
    with going_on(study, "relu", 3, budget=budget):
        assert look(study).runs[-1].share == share


def test_a_history_that_cannot_be_read_costs_its_run_only(study: Path, tmp_path: Path) -> None:
    with going_on(study, "relu", 3) as folder:
        (folder / "metrics.jsonl").write_bytes(b"\xff\n[1]\n")
        (folder / "manifest.json").write_text("{")
        run = look(study).runs[-1]
    assert (run.state, run.value, run.share, run.seconds_left) == ("running", None, None, None)
    assert cell(run) == "..."
    assert last_line(tmp_path / "none") == {}


def test_the_time_left_follows_from_what_ended_what_runs_and_how_many_go_side_by_side() -> None:
    ended = RunNow("a", 1, "finished", seconds=10.0)
    half = RunNow("a", 2, "running", share=0.5, seconds=4.0)
    waiting = RunNow("a", 3, "planned")
    assert Sweep("s", "loss", (ended, half, waiting)).seconds_left == 4.0 + 10.0
    assert Sweep("s", "loss", (ended, half, half, waiting)).seconds_left == (4.0 + 4.0 + 10.0) / 2
    assert Sweep("s", "loss", (half, waiting)).seconds_left == 4.0 + 8.0, "the run itself tells, before any has ended"
    assert Sweep("s", "loss", (ended, RunNow("a", 2, "running"))).seconds_left == 5.0
    assert Sweep("s", "loss", (ended, waiting)).seconds_left is None
    assert Sweep("s", "loss", (RunNow("a", 2, "running"),)).seconds_left is None


def test_trials_of_a_tuning_stand_for_the_runs_that_they_choose(study: Path) -> None:
    plan = json.loads((study / "plan.json").read_text())
    trials = plan["runs"][:3]
    tune = {
        "key": "train.learning_rate", "factor": 2.0, "points": 3, "max_trials": 9, "seeds": [1], "metric": "final_loss",
        "lower": True, "arms": {"none": {"values": [0.1], "chosen": None}}, "trials": trials, "controls": [],
    }  # fmt: skip
    (study / "plan.json").write_text(json.dumps({**plan, "tune": tune}))
    sweep = look(study)
    assert (len(sweep.runs), sweep.count("finished"), sweep.deciding, sweep.is_over) == (3, 3, 6, False)
    assert view(sweep, 80, 40)[0] == "seeded: 3 of 3 trials ended, then 6 decide"
    tune["arms"]["none"]["chosen"] = 0.1
    (study / "plan.json").write_text(json.dumps({**plan, "tune": {**tune, "controls": trials[:1]}}))
    sweep = look(study)
    assert (len(sweep.runs), sweep.deciding) == (7, 0)


def test_a_row_per_variant_and_a_column_per_seed(study: Path) -> None:
    with going_on(study, "relu", 3):
        lines = view(look(study), 80, 40)
    assert lines[0].startswith("seeded: 5 of 6 ended (1 failed), 1 running  about 0:14 left")
    assert [line.split() for line in lines[2:]] == [
        ["seed", "1", "seed", "2", "seed", "3"],
        ["none", "3.100", "3.200", "3.300"],
        ["relu", "3.050", "failed", "2.500", "30%"],
    ]


def test_what_has_no_room_is_said_and_what_runs_is_shown() -> None:
    def state(place: int, seed: int) -> str:
        return "running" if (place, seed) == (25, 30) else "finished" if seed < 30 else "planned"

    grid = [(place, seed) for seed in range(40) for place in range(30)]
    many = tuple(RunNow(f"v{place}", seed, state(place, seed), value=1.0) for place, seed in grid)
    lines = view(Sweep("s", "loss", many), 60, 12)
    assert len(lines) <= 12 and max(map(len, lines)) <= 60
    assert "seed 30" in lines[2] and any(line.startswith("v25") for line in lines)
    assert lines[-1].startswith("and ") and "variants" in lines[-1] and "seeds" in lines[-1]


def test_it_ends_with_the_sweep_and_each_run_is_a_line_where_there_is_no_terminal(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The planned run begins, and ends, while somebody looks."""
    stack, turns = ExitStack(), [0]

    def sleep(seconds: float) -> None:
        turns[0] += 1
        if turns[0] == 1:
            stack.enter_context(going_on(study, "relu", 3))
        else:
            folder = folder_of(study, "relu", 3)
            result = {"schema": 1, "id": "x", "state": "finished", "metrics": {"final_loss": 2.0}, "seconds": 1.0}
            (folder / "result.json").write_text(json.dumps(result))
            stack.close()

    sweep = watch.follow(watch.Eye(study), sleep)
    assert (turns[0], sweep.is_over) == (2, True)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    lines = out.splitlines()
    assert [line.split(":")[0] for line in lines if ": finished" in line or ": failed" in line] == [
        "none seed 1", "none seed 2", "none seed 3", "relu seed 1", "relu seed 2", "relu seed 3",
    ]  # fmt: skip
    assert "relu seed 3: finished, 2.000, 1.0 s" in lines and "6 of 6 ended (1 failed)" in lines[-1]


def test_it_ends_where_nothing_runs_any_more(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_PATIENCE", 0.0)
    assert main(["watch", str(study)]) == 1
    out, err = capsys.readouterr()
    assert "1 to come" in out and "nothing runs any more" in err


def test_on_a_terminal_the_view_takes_the_place_of_the_one_before(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    eye = watch.Eye(study)
    eye.on_terminal = True
    eye.draw(look(study))
    first = capsys.readouterr().out
    eye.show(look(study))
    second = capsys.readouterr().out
    assert second == f"\x1b[{len(first.splitlines())}F\x1b[J{first}"


def test_one_look_and_its_exit_code(tmp_path: Path, study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(study), "--once"]) == 1
    assert "5 of 6 ended" in capsys.readouterr().out
    whole = make_seeded(tmp_path, [Arm("none", {1: 3.0})], name="whole")
    assert main(["watch", str(whole)]) == 0


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused_command(capsys, "watch", code="watch-what")
    refused_command(capsys, "watch", tmp_path, code="not-a-study", folder=tmp_path)


def test_it_needs_no_torch(study: Path) -> None:
    code = (
        "import sys; from gptlab.cli import main; main(['watch', sys.argv[1], '--once']); "
        "sys.exit(str({'torch', 'pandas', 'numpy', 'hydra', 'scipy'} & set(sys.modules) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(study)], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "" and "5 of 6 ended" in done.stdout
