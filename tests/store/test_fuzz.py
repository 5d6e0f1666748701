"""One damaged file costs one line: whatever stands in a file, every reading command ends in order and shows the rest.

300 cases for each kind of file among the slow tests; `make fuzz` tries 10,000 (GPTLAB_FUZZ says how many).
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from gptlab.cli import main
from gptlab.planning.plan import expand
from gptlab.running.launch import run_jobs
from gptlab.running.queue import open_study
from gptlab.store import files, locks
from gptlab.store.damage import DamagedError
from gptlab.store.data_files import Look
from gptlab.store.dependencies import changes
from gptlab.store.find_runs import find_runs
from gptlab.store.records import parsed_config
from gptlab.store.run_listing import list_runs
from gptlab.store.states import STATES, state_of
from gptlab.store.study import load_study
from gptlab.store.study_sources import load_sources
from gptlab.store.upkeep.verify import verify
from gptlab.training import checkpoint
from tests.support.fuzzed import damage, damages

FEW, CASES = 20, int(os.environ.get("GPTLAB_FUZZ", "300"))
HOW_MANY = pytest.mark.parametrize("cases", [FEW, pytest.param(CASES, marks=pytest.mark.slow)], ids=["few", "many"])
KINDS = ["result.json", "manifest.json", "config.yaml", "layers.csv", "generation.json", "metrics.jsonl", "lock.json",
         "crash.json", "plan.json"]  # fmt: skip
WORDS = ["model=toy_lesson", "data=sentences", "seed=1,2", "train.budget=2", "evaluation.every=1",
         "train.log_every=1", "probes.shapes=null"]  # fmt: skip


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of two finished runs, the first of which has a file of every kind."""
    root = tmp_path_factory.mktemp("fuzz")
    study, plan = open_study(expand([*WORDS, f"output_dir={root}"]))
    assert run_jobs(plan, study) == ["finished", "finished"]
    (study / plan.runs[0].folder / "lock.json").write_bytes(locks._own(held_open=False))
    (study / plan.runs[0].folder / "crash.json").write_text('{"error": "killed"}')
    return study


def read_everything(study: Path) -> None:
    """What listing, comparing, reporting, verifying and planning are made of."""
    rows = list_runs(study)
    labels = {row.seed: row.state for row in rows}
    assert rows and {row.state for row in rows} <= set(STATES)
    assert labels.get(2) == "finished", "the other run is as it was"
    for row in rows:
        assert row.value("model.n_layers") in (None, row.value("model.n_layers")) and str(row.error) is not None
    for folder in find_runs(study):
        state = state_of(folder)
        changes(state.result, Look())
        parsed_config(folder)
        locks.holder(folder)
    frames = load_study(study)
    assert len(frames.runs) == 2
    for source in load_sources([study], histories=True):
        assert [record.run.seed for record in source.records][-1] == 2
    assert len(list(verify(study))) >= 1


def copied(template: Path, target: Path, sealed: bool) -> tuple[Path, Path]:
    """The study, and its first run. Not `sealed`: its result tells no hashes, so that what is in a file is believed."""
    study = Path(shutil.copytree(template, target))
    first = next(folder for folder in sorted(study.iterdir()) if "-s1-" in folder.name)
    if not sealed:
        left_out = ("artifacts", "history_bytes")
        result = {k: v for k, v in files.read_json(first / "result.json").items() if k not in left_out}
        files.write_json(first / "result.json", result)
    return study, first


@HOW_MANY
@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_one_damaged_file_costs_one_run(template: Path, tmp_path: Path, kind: str, sealed: bool, cases: int) -> None:
    study, first = copied(template, tmp_path / "study", sealed)
    path = study / kind if kind == "plan.json" else first / kind
    content, result = path.read_bytes(), (first / "result.json").read_bytes()

    @settings(max_examples=cases, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(damages())
    def costs_one_run(how: dict[str, Any]) -> None:
        damage(path, how)
        if kind in ("lock.json", "crash.json"):  # they are looked at where there is no result
            (first / "result.json").unlink()
        try:
            read_everything(study)
        finally:
            if path.is_dir():
                path.rmdir()
            path.write_bytes(content)
            (first / "result.json").write_bytes(result)

    costs_one_run()


@HOW_MANY
def test_a_damaged_checkpoint_is_passed_over(template: Path, tmp_path: Path, cases: int) -> None:
    run = next(folder for folder in sorted(template.iterdir()) if "-s1-" in folder.name)
    folder = Path(shutil.copytree(next((run / "checkpoints").iterdir()), tmp_path / "checkpoints" / "step_00000002"))
    run_id = state_of(run).result.id
    assert checkpoint.load(folder, run_id).step == 2
    path = folder / "meta.json"
    content = path.read_bytes()

    @settings(max_examples=cases, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(damages())
    def passed_over(how: dict[str, Any]) -> None:
        damage(path, how)
        try:
            found, refused = checkpoint.newest(tmp_path, run_id)
            assert (found is None) == bool(refused)
        finally:
            if path.is_dir():
                path.rmdir()
            path.write_bytes(content)

    passed_over()


COMMANDS = [["ls"], ["ls", "--format", "csv"], ["ls", "--format", "json"], ["compare"], ["compare", "--by", "step"],
            ["report"], ["verify"], ["gc"]]  # fmt: skip
WORST = {
    "result.json": ['{"state": "finished", "metrics": {"loss": 1e308, "final_loss": -1e308}, "seed": 1, "id": "a"}',
                    '{"state": {}, "metrics": {}}', "[" * 100_000],
    "lock.json": ['{"pid": Infinity, "host": "x", "since": "", "machine": ["", ""], "started": 1}',
                  '{"pid": 1, "host": "x", "since": "", "machine": null, "started": 1}', '{"a":' * 50_000],
    "plan.json": ['{"runs": [{"id": "a", "label": "a", "seed": Infinity, "folder": "a"}]}',
                  '{"runs": [{"id": "a", "label": "a", "seed": 1e400, "folder": "a"}]}', '{"runs": [[]]}'],
    "metrics.jsonl": ['{"step": 1, "tokens": 1, "metrics": {"validation_loss": 1e308}}\n', "[]\n", "{}"],
    "layers.csv": ["step,layer,part,metric,value\n0,1,all,grad_norm,1e308\n", "a", "\0"],
    "manifest.json": ["[]", '{"config": [], "packages": 3}', '{"stretches": [1], "files": {}}'],
    "config.yaml": ["", "- a", "a: [", "model: {n_layers: .inf}"],
}  # fmt: skip


@pytest.mark.parametrize("kind", WORST)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_ends_in_a_traceback(template: Path, tmp_path: Path, kind: str, command: list[str]) -> None:
    study, first = copied(template, tmp_path / "study", sealed=False)
    for content in WORST[kind]:
        (study / kind if kind == "plan.json" else first / kind).write_text(content)
        if kind == "lock.json":
            (first / "result.json").unlink(missing_ok=True)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([command[0], str(study), *command[1:]])
        assert code in (0, 1, 2) and "Traceback" not in err.getvalue(), (content[:60], err.getvalue())
        if command[0] == "ls":
            assert code == 0 and "finished" in out.getvalue()


def test_damage_is_one_of_the_users_errors() -> None:
    from gptlab.errors import GptlabError

    assert issubclass(DamagedError, GptlabError)
