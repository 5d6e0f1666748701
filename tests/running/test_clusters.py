"""Slurm's way through submitit's local executor, and a local Ray: the same files, and lost jobs cost their run only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gptlab.cli import dispatch, main
from gptlab.planning.plan import expand
from gptlab.running.launch import run_jobs
from gptlab.running.queue import open_study
from gptlab.store.states import state_of
from tests.running.test_workers import PLUGIN
from tests.support.faults import assert_sound
from tests.support.refusals import refused, refused_command

WORDS = ["model=tiny", "probes.generation=null", "seed=1,2,3"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return tmp_path


def same_as_alone(study: Path) -> None:
    alone, plan = open_study(expand([*WORDS, "output_dir=alone"]))
    run_jobs(plan, alone)
    assert numbers_of(study) == numbers_of(alone) and len(numbers_of(study)) == 3


def numbers_of(study: Path) -> dict[str, object]:
    return {path.parent.name: state_of(path.parent).result.metrics for path in study.glob("*/result.json")}


@pytest.mark.slow
def test_submitit_measures_the_same() -> None:
    pytest.importorskip("submitit")
    words = [
        *WORDS,
        "launcher=submitit",
        "launcher_options.cluster=local",
        "launcher_options.timeout_min=5",
        "workers=2",
    ]
    assert main(words) == 0
    assert set(assert_sound(Path("outputs/runs")).values()) == {"finished"}
    same_as_alone(Path("outputs/runs"))
    assert main(words) == 0  # all there: nothing is submitted


@pytest.mark.slow
def test_a_killed_job_of_submitit_costs_its_run_only(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    (here / "trouble_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(here)
    words = ["model=tiny", "plugins=[trouble_plugin]", "model.activation=test_trouble", "probes.generation=null",
             "probes.shapes=null", "probes.parameters=null",
             "launcher=submitit", "launcher_options.cluster=local", "workers=2",
             "model.options.activation.kind=kill,raise,none"]  # fmt: skip
    study, plan = open_study(expand(words))
    assert run_jobs(plan, study) == ["crashed", "failed", "finished"]
    assert "was lost" in state_of(study / plan.runs[0].folder).reason


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # ray opens and forgets many things
def test_ray_measures_the_same(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # or it would write a token into the home folder
    before = dict(os.environ)
    ray = pytest.importorskip("ray")
    (here / "trouble_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(here)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        assert main([*WORDS, "launcher=ray", "workers=2"]) == 0
        same_as_alone(Path("outputs/runs"))
        words = ["model=tiny", "plugins=[trouble_plugin]", "model.activation=test_trouble", "probes.generation=null",
                 "probes.shapes=null", "probes.parameters=null", "launcher=ray", "workers=2", "experiment.name=trouble",
                 "model.options.activation.kind=kill,raise,none"]  # fmt: skip
        study, plan = open_study(expand(words))
        assert run_jobs(plan, study) == ["crashed", "failed", "finished"]
        assert "was lost" in state_of(study / plan.runs[0].folder).reason
    finally:
        ray.shutdown()
        for name in os.environ.keys() - before.keys():  # ray sets some
            del os.environ[name]


@pytest.mark.parametrize(
    ("words", "code", "facts"),
    [
        (
            ["launcher=submitit", "launcher_options.cluster=local", "launcher_options.tmeout_min=5"],
            "launcher-options",
            {"key": "launcher_options"},
        ),
        (["launcher_options.cluster=local"], "launcher-options-unread", {"key": "launcher_options"}),
        (["launcher=slurm"], "unknown-name", {"value": "slurm", "allowed": ["local", "ray", "submitit"]}),
        (["workers=1,2"], "key-cannot-be-swept", {"key": "workers"}),
        (["workers=0"], "out-of-range", {"key": "workers", "value": 0, "low": 1}),
    ],
)
def test_mistakes(words: list[str], code: str, facts: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    if "launcher=submitit" in words:
        pytest.importorskip("submitit")
    arguments = ["model=tiny", "probes=counting", *words]
    if code == "launcher-options":  # submitit says so, after the study was begun
        with refused(code, **facts):
            dispatch(arguments)
        return
    refused_command(capsys, *arguments, code=code, **facts)


def test_a_launcher_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("gptlab.planning.rules.importlib.util.find_spec", lambda name: None)
    words = ["model=tiny", "probes=counting", "launcher=ray"]
    refused_command(capsys, *words, code="launcher-not-installed", key="launcher", value="ray")
