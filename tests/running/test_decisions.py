"""The same command again: what is done with each run, and why."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gptlab.cli import main
from gptlab.planning.plan import Plan, PlannedRun, expand
from gptlab.running import decisions, execute
from gptlab.running.decisions import decide, explain, survey
from gptlab.running.launch import run_jobs
from gptlab.running.queue import open_study, perform
from gptlab.store import dependencies, files
from gptlab.store.states import STATES, state_of

FAST = ["model=tiny", "probes=counting"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def opened(*words: str) -> tuple[Path, Plan]:
    return open_study(expand([*FAST, *words]))


def put(study: Path, run: PlannedRun, state: str) -> Path:
    """A run folder in this state."""
    folder = study / run.folder
    if state == "planned":
        return folder
    perform(run, study)
    result = files.read_json(folder / "result.json")
    if state in ("failed", "diverged", "interrupted"):
        files.write_json(folder / "result.json", {**result, "state": state, "error": "ValueError: because"})
    if state in ("crashed", "running"):
        (folder / "result.json").unlink()
    if state == "damaged":
        (folder / "result.json").write_text("{")
    if state == "running":
        import platform

        lock = {"pid": 1, "host": f"not {platform.node()}", "machine": ["", ""], "started": "1", "since": "noon"}
        files.write_json(folder / "lock.json", lock)
    assert state_of(folder).name == state
    return folder


TABLE = [
    # state, further settings, action, a part of the reason
    ("planned", [], "run", "planned"),
    ("finished", [], "skip", "finished"),
    ("finished", ["retry_failed=true"], "skip", "finished"),
    ("finished", ["rerun_on=any"], "skip", "finished"),
    ("diverged", [], "skip", "diverged"),
    ("failed", [], "skip", "retry_failed=true runs it again: ValueError: because"),
    ("failed", ["retry_failed=true"], "run", "failed, and retry_failed=true"),
    ("interrupted", [], "resume", "interrupted"),
    ("crashed", [], "resume", "crashed"),
    ("damaged", [], "skip", "result.json: not valid JSON"),
    ("damaged", ["retry_failed=true"], "run", "kept beside it"),
    ("running", [], "skip", "running: process 1 on not "),
    ("running", ["retry_failed=true", "rerun_on=any"], "skip", "running"),
]


@pytest.mark.parametrize(("state", "words", "action", "part"), TABLE)
def test_what_is_done_in_each_state(state: str, words: list[str], action: str, part: str) -> None:
    study, plan = opened(*words)
    folder = put(study, plan.runs[0], state)
    decision = decide(plan.runs[0], folder)
    assert (decision.action, decision.state) == (action, state)
    assert part in decision.reason


def test_the_table_has_every_state() -> None:
    assert {row[0] for row in TABLE} == set(STATES)


@pytest.mark.parametrize(
    ("words", "action"),
    [([], "skip"), (["rerun_on=data"], "skip"), (["rerun_on=code"], "run"), (["rerun_on=any"], "run")],
)
def test_changed_code_marks_a_run_stale_and_runs_it_only_when_asked(
    monkeypatch: pytest.MonkeyPatch, words: list[str], action: str
) -> None:
    study, plan = opened(*words)
    folder = put(study, plan.runs[0], "finished")
    monkeypatch.setattr(dependencies, "_own", lambda: "0" * 64)
    decision = decide(plan.runs[0], folder)
    assert (decision.action, decision.stale) == (action, "the code of gptlab")
    assert "rerun_on=code" in decision.reason or action == "run"


def test_a_changed_version_of_torch_counts_as_changed_code(monkeypatch: pytest.MonkeyPatch) -> None:
    study, plan = opened()
    folder = put(study, plan.runs[0], "finished")
    monkeypatch.setattr(dependencies, "_version", lambda package: "99.0")
    assert decide(plan.runs[0], folder).stale.startswith("torch ")
    assert "-> 99.0" in decide(plan.runs[0], folder).stale


@pytest.mark.usefixtures("scratch_registry")
def test_a_changed_plugin_counts_as_changed_code(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(here)
    plugin = here / "plugin_that_changes.py"
    text = "from gptlab.data.kinds import register_data\n\n@register_data('changes')\ndef make(value: int = 1): ...\n"
    plugin.write_text(text)
    study, plan = opened("plugins=[plugin_that_changes]")
    folder = put(study, plan.runs[0], "finished")
    assert files.read_json(folder / "manifest.json")["code"]["plugin_that_changes"]
    assert decide(plan.runs[0], folder).stale == ""
    plugin.write_text(text.replace("1", "2"))
    dependencies._module.cache_clear()
    assert decide(plan.runs[0], folder).stale == "the code of plugin_that_changes"
    dependencies._module.cache_clear()


def test_changed_data_is_noticed(here: Path) -> None:
    (here / "text.txt").write_text("some words, and some more of them. " * 20)
    words = ["model=tiny", "data=text", "data.path=text.txt", "probes.gradients.context=8", "probes.generation=null"]
    study, plan = open_study(expand(words))
    folder = put(study, plan.runs[0], "finished")
    assert decide(plan.runs[0], folder).stale == ""
    (here / "text.txt").write_text("other words, and some more of them. " * 20)
    decision = decide(plan.runs[0], folder)
    assert (decision.action, decision.stale) == ("skip", "the text of text.txt")
    again = replace(plan.runs[0], config=replace(plan.runs[0].config, rerun_on="data"))
    assert decide(again, folder).action == "run"


# Every room and file of the ground, and whether an edit there can change a number. A new one has to be sorted in.
CHANGES_NUMBERS = {
    "config.py", "data", "generating", "kernels.py", "model", "probes", "registry.py", "signatures.py", "streams.py",
    "training", "weights",
}  # fmt: skip
CHANGES_NONE = {
    "__init__.py", "__main__.py", "analyses.py", "api.py", "book", "check", "cli", "comparing", "declare", "errors.py",
    "identity.py", "margin.py", "metrics.py", "other_names.py", "planning", "show", "store", "sweeping.py", "texts.py",
    "tuned.py", "twin.py", "values.py",
}  # fmt: skip
MIXED = {"running": {"execute.py"}}


def test_an_edit_marks_runs_stale_only_where_it_can_change_a_number(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through all rooms: each of them is edited, in a copy."""
    import gptlab

    source = Path(gptlab.__file__).parent
    root = Path(shutil.copytree(source, here / "gptlab", ignore=shutil.ignore_patterns("__pycache__", "conf")))
    names = {path.name for path in root.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert names == CHANGES_NUMBERS | CHANGES_NONE | MIXED.keys(), "a room that nobody has thought about"
    monkeypatch.setattr(dependencies, "__file__", str(root / "store" / "dependencies.py"))

    def code() -> str:
        dependencies._own.cache_clear()
        return dependencies._own()

    try:
        before = code()
        for path in sorted(root.rglob("*.py")):
            place = path.relative_to(root)
            counts = place.parts[0] in CHANGES_NUMBERS or place.name in MIXED.get(place.parts[0], ())
            content = path.read_bytes()
            path.write_bytes(content + b"# edited\n")
            assert (code() != before) is counts, place
            path.write_bytes(content)
    finally:
        dependencies._own.cache_clear()


def test_the_same_command_again_runs_only_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    executed: list[str] = []
    original = execute._measure

    def measure(config: Any, *rest: Any) -> Any:
        executed.append(config.label)
        if config.model.activation == "silu" and "no luck" in luck:
            raise ValueError("no luck")
        return original(config, *rest)

    luck = ["no luck"]
    monkeypatch.setattr(execute, "_measure", measure)
    words = [*FAST, "ablation=relu,silu"]
    assert main(words) == 1
    assert executed == ["baseline", "relu", "silu"]
    executed.clear()
    assert main(words) == 1
    err = capsys.readouterr().err
    assert executed == []
    assert "skip   baseline, relu (finished)" in err
    assert "skip   silu (failed; retry_failed=true runs it again: ValueError: no luck)" in err
    luck.clear()
    assert main([*words, "retry_failed=true"]) == 0
    assert executed == ["silu"]
    executed.clear()
    assert main([*FAST, "ablation=relu,silu,rmsnorm"]) == 0
    assert executed == ["rmsnorm"]
    assert "run    1 not started yet (planned)" in capsys.readouterr().err


def test_a_first_command_says_nothing_about_decisions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(FAST) == 0
    assert "planned" not in capsys.readouterr().err  # a line for the run, and none for what was decided


def test_plan_shows_the_decisions_and_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FAST, "seed=1"]) == 0
    capsys.readouterr()
    assert main(["plan", *FAST, "seed=1,2"]) == 0
    out = capsys.readouterr().out
    assert "skip" in out and "finished" in out and "1 not started yet" in out
    assert main(["plan", *FAST, "seed=1,2", "--format=json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["decision"]["action"] for run in runs] == ["skip", "run"]


def test_a_run_is_found_whatever_its_label(capsys: pytest.CaptureFixture[str]) -> None:
    """`activation=relu` alone, or against another value: the id stays while the label changes."""
    assert main([*FAST, "model.activation=relu", "label=mine"]) == 0
    study, plan = opened("model.activation=gelu_tanh,relu")
    assert [d.action for d in survey(plan, study)] == ["run", "skip"]
    assert plan.runs[1].folder.startswith("mine-s123-") and plan.runs[1].label == "activation=relu"
    assert main([*FAST, "model.activation=gelu_tanh,relu"]) == 0
    assert "activation=relu" in capsys.readouterr().out
    assert len(list(Path("outputs/runs").glob("*-s123-*"))) == 2


def test_every_plan_is_kept_and_the_table_is_of_the_latest() -> None:
    main([*FAST, "seed=1"])
    main([*FAST, "seed=2"])
    assert len(list(Path("outputs/runs/plans").iterdir())) == 2
    assert [run["seed"] for run in files.read_json("outputs/runs/plan.json")["runs"]] == [2]


def test_two_ids_with_the_same_beginning_have_two_folders() -> None:
    study, plan = opened()
    run = plan.runs[0]
    perform(run, study)
    other = replace(run, id=run.id[:8] + "f" * 56)
    twin = open_study(replace(plan, runs=(other,)))[1].runs[0]
    assert twin.folder != run.folder and twin.folder.endswith(other.id[:16])


def test_on_error_stop_starts_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(config: Any, *rest: Any) -> None:
        if config.seed == 2:
            raise ValueError("no luck")

    monkeypatch.setattr(execute, "_measure", measure)
    study, plan = opened("seed=1,2,3", "on_error=stop")
    assert run_jobs(plan, study) == ["finished", "failed", "planned"]
    study, plan = opened("seed=1,2,3")
    assert run_jobs(plan, study) == ["finished", "failed", "finished"]


def test_crashed_runs_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that kills its process each time must not keep the others from their turn."""
    seeds: list[int] = []
    study, plan = opened("seed=1,2,3")
    put(study, plan.runs[0], "crashed")
    monkeypatch.setattr(execute, "_measure", lambda config, *rest: seeds.append(config.seed))
    assert run_jobs(plan, study) == ["finished"] * 3
    assert seeds == [2, 3, 1]


def test_a_resumed_run_keeps_what_is_there_and_a_fresh_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    study, plan = opened()
    run = plan.runs[0]
    folder = put(study, run, "interrupted")
    start = files.read_json(folder / "manifest.json")["start"]
    (folder / "checkpoints" / "step_00000010").mkdir(parents=True)
    (folder / "metrics.jsonl").write_text('{"step": 10}\n')
    found: list[bool] = []
    monkeypatch.setattr(execute, "_measure", lambda c, f, *rest: found.append((f / "metrics.jsonl").exists()))
    run_jobs(plan, study)
    assert found == [True] and (folder / "checkpoints" / "step_00000010").is_dir()
    assert [s["start"] for s in files.read_json(folder / "manifest.json")["stretches"]][:-1] == [start]
    put(study, run, "failed")
    study, plan = opened("retry_failed=true")
    run_jobs(plan, study)
    assert found == [True, False] or found[-1] is False
    assert not (folder / "checkpoints").exists()


def test_an_interrupted_run_goes_on_after_a_power_cut_took_the_end_of_its_history() -> None:
    study, plan = opened("seed=1,2")
    for run, state, action in zip(plan.runs, ("interrupted", "diverged"), ("resume", "skip"), strict=True):
        folder = put(study, run, state)
        (folder / "metrics.jsonl").write_text('{"step": 10}\n')
        files.write_json(folder / "result.json", {**files.read_json(folder / "result.json"), "history_bytes": 26})
        assert decide(run, folder).action == action
        assert state_of(folder).name == ("damaged" if action == "skip" else state)


def test_many_runs_are_explained_in_few_lines() -> None:
    plan = expand([*FAST, "seed=range(0,200)"])
    made = [decisions.Decision("skip", "finished", "finished")] * 150 + [
        decisions.Decision("run", "planned", "planned")
    ] * 50
    lines = explain(plan.runs, made)
    assert len(lines) == 2 and "and 146 more" in lines[0] and lines[1] == "run    50 not started yet (planned)"
