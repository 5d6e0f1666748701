"""A tuned study from the first trial to the verdict, run for real: stages, resuming, and what no table counts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import gptlab
from gptlab.cli import main
from gptlab.comparing.assemble import compare
from gptlab.planning.plan import expand
from gptlab.running.stages import reached
from gptlab.store.run_listing import list_runs

WORDS = [
    "model=toy_lesson", "data=sentences", "train=toy", "probes=counting", "probes.parameters=null", "train.budget=2",
    "train.keep_checkpoints=0", "evaluation.final=false", "ablation=relu", "tune=learning_rate", "tune.seeds=[901]",
    "tune.max_trials=6",
]  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPTLAB_CONF_PATH", raising=False)
    return tmp_path


@pytest.mark.slow
def test_trials_then_a_verdict_that_no_trial_enters(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two steps: the highest rate is the best one, so that the grid goes on once, and ends at its edge."""
    study = gptlab.sweep(WORDS, seed=[1, 2])
    plan = json.loads((study.folder / "plan.json").read_text())
    tune = plan["tune"]
    assert (tune["stage"], len(tune["trials"]), study.states[:4]) == ("verdict", 12, ("finished",) * 4)
    assert {arm: (entry["trials"], entry["chosen"]) for arm, entry in tune["arms"].items()} == {
        "baseline": (6, 0.04), "relu": (6, 0.04)
    }  # fmt: skip
    found = compare([study.folder])
    assert {row.label: sorted(row.runs) for row in found.rows} == {"baseline": [1, 2], "relu": [1, 2]}
    assert found.seeds == (1, 2)
    roles = [row.role for row in list_runs(study.folder)]
    assert roles == [""] * 4 + ["tuning"] * 12
    plans = sorted((study.folder / "plans").glob("*.json"))
    assert [len(json.loads(path.read_text())["tune"]["trials"]) for path in plans] == [10, 12, 12]

    trial = study.folder / tune["trials"][0]["folder"]
    before = {path: path.stat().st_mtime_ns for path in study.folder.glob("*/result.json") if path.parent != trial}
    shutil.rmtree(trial)  # as if it had been stopped there
    assert main([*WORDS, "seed=1,2"]) == 0
    said = capsys.readouterr().err
    assert "best learning_rate: " not in said and "best learning_rate of 6: baseline 0.04, relu 0.04" in said
    assert trial.is_dir() and json.loads((study.folder / "plan.json").read_text())["tune"]["arms"] == tune["arms"]
    assert {path: path.stat().st_mtime_ns for path in before} == before

    result = trial / "result.json"
    content = json.loads(result.read_text())
    result.write_text(json.dumps({**content, "code": {**content["code"], "gptlab": "another"}}))
    for words, stage in (([], "verdict"), (["rerun_on=code"], "trials")):
        plan = reached(expand([*WORDS, "seed=1,2", *words]))
        assert plan.to_json()["tune"]["stage"] == stage, "what chose the rates is run again, and they are chosen anew"


@pytest.mark.slow
def test_a_failed_trial_ends_the_study_before_its_verdict(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = gptlab.sweep(WORDS, seed=[1])
    tune = json.loads((study.folder / "plan.json").read_text())["tune"]
    result = study.folder / tune["trials"][3]["folder"] / "result.json"
    result.write_text(json.dumps({**json.loads(result.read_text()), "state": "failed", "error": "ValueError: no"}))
    assert main([*WORDS, "seed=1"]) == 1
    assert "1 failed" in capsys.readouterr().err
    assert json.loads((study.folder / "plan.json").read_text())["tune"]["stage"] == "trials"
    assert main([*WORDS, "seed=1", "retry_failed=true"]) == 0
