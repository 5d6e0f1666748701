"""What a run says of itself: the manifest, explain-id, verify, rerun, gc, and stores of older schemas."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gptlab
from gptlab.cli import main
from gptlab.declare.to_config import from_stored
from gptlab.identity import has_identity
from gptlab.planning.plan import Plan, expand
from gptlab.running import execute, provenance
from gptlab.running.launch import run_jobs
from gptlab.running.queue import open_study, perform
from gptlab.store import files
from gptlab.store.config_file import read_config
from gptlab.store.find_runs import find_runs
from gptlab.store.states import state_of
from tests.support.faults import hooked
from tests.support.refusals import refused_command

FAST = ["model=tiny", "probes=counting"]
STORE = Path(__file__).parents[1] / "data_stores" / "schema1"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(*words: str) -> tuple[Path, Plan]:
    study, plan = open_study(expand([*FAST, *words]))
    assert set(run_jobs(plan, study)) == {"finished"}
    return study, plan


def output(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(arguments) == code, capsys.readouterr()
    return capsys.readouterr().out


# P7: the manifest


def test_the_manifest_says_what_produced_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET_TOKEN", "tell-nobody")
    provenance.provenance.cache_clear()
    study, plan = ran("seed=7")
    folder = study / plan.runs[0].folder
    manifest = files.read_json(folder / "manifest.json")
    for key in ("command", "python", "packages", "installed", "platform", "host", "cpu", "cpus", "gpus", "threads",
                "threads_environment", "deterministic", "git", "git_reason", "overrides", "seed", "rng", "config",
                "code", "start",
                "stop", "state", "error", "data_sha256", "id"):  # fmt: skip
        assert key in manifest, key
    assert manifest["id"] == plan.runs[0].id and manifest["seed"] == 7 and manifest["threads"] == 1
    assert manifest["config"]["model"]["emb_dim"] == 32
    assert manifest["start"] <= manifest["stop"] and manifest["state"] == "finished"
    assert any(line.startswith("torch==") for line in manifest["installed"])
    for path in folder.iterdir():
        assert "tell-nobody" not in path.read_text()


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_one_edited_line_makes_another_manifest(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a checkout of its own; outside of git it works too."""
    package = here / "checkout" / "gptlab" / "runs"
    package.mkdir(parents=True)
    (package / "provenance.py").write_text("VALUE = 1\n")
    monkeypatch.setattr(provenance, "__file__", str(package / "provenance.py"))

    def seen() -> dict[str, Any] | None:
        provenance._git.cache_clear()
        return provenance.git()

    try:
        assert seen() is None and provenance.patch() == ""
        assert "without a checkout" in provenance.why_no_git()
        git(here / "checkout", "init", "-q")
        git(here / "checkout", "add", ".")
        git(here / "checkout", "commit", "-qm", "one")
        clean = seen()
        assert clean is not None and not clean["dirty"] and clean["diff_sha256"] is None and len(clean["commit"]) == 40
        (package / "provenance.py").write_text("VALUE = 2\n")
        (here / "checkout" / "new.py").write_text("")
        dirty = seen()
        assert dirty is not None and dirty["dirty"] and dirty["commit"] == clean["commit"]
        assert dirty["diff_sha256"] and dirty["untracked"] == ["new.py"]
        assert "+VALUE = 2" in provenance.patch() and "patch" not in dirty
    finally:
        provenance._git.cache_clear()


# explain-id


def test_explain_one_and_two(capsys: pytest.CaptureFixture[str]) -> None:
    study, plan = ran()
    run = plan.runs[0]
    out = output(capsys, "explain-id", str(study / run.folder))
    assert out.startswith(f"id  {run.id}\n")
    assert 'model.activation = "gelu_tanh"' in out and "schema_version = 2" in out
    assert "workers = 1  (how many runs go side by side)" in out
    assert output(capsys, "explain-id", run.id[:10]) == out
    both = output(capsys, "explain-id", run.id[:10], "model=tiny probes=counting seed=5 threads=3")
    assert "The ids differ by:\n  seed: 123 | 5\n" in both
    assert "threads: 1 | 3  (moves the last bits" in both
    assert "it is the same run" in output(capsys, "explain-id", run.id[:10], "model=tiny probes=counting")


@pytest.mark.parametrize(
    ("words", "code", "facts"),
    [
        ([], "explain-id-words", {}),
        (["0123abcd"], "run-not-found", {"word": "0123abcd", "output_dir": Path("outputs")}),
        (["nowhere"], "run-not-found", {"word": "nowhere", "output_dir": Path("outputs")}),
        (["model=tny"], "unknown-name", {"key": "model=tny", "suggestion": "tiny"}),
    ],
)
def test_explain_mistakes(
    capsys: pytest.CaptureFixture[str], words: list[str], code: str, facts: dict[str, Any]
) -> None:
    refused_command(capsys, "explain-id", *words, code=code, **facts)


def test_a_stored_config_is_the_config(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the text looks like an interpolation."""
    study, plan = open_study(expand(FAST))
    config = replace(plan.runs[0].config, label="a ${b} \\${c}", rerun_on="code")
    folder = study / plan.runs[0].folder
    execute.execute(config, folder)
    assert from_stored(read_config(folder)) == config
    assert read_config(folder)["label"] == config.label


# verify


def test_verify_finds_a_flipped_bit_that_loads_silently(capsys: pytest.CaptureFixture[str]) -> None:
    study, plan = ran("seed=1,2")
    assert "2 runs (2 finished), " in output(capsys, "verify", str(study)) and "all intact" in output(capsys, "verify")
    path = study / plan.runs[1].folder / "shapes.csv"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))
    out = output(capsys, "verify", code=1)
    assert f"{study / plan.runs[1].folder}\n    shapes.csv: not as the run wrote it" in out and "1 damaged" in out
    assert "all intact" in output(capsys, "verify", str(study / plan.runs[0].folder))


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("config.yaml", "seed: 9\n", "config.yaml: is not the config of"),
        ("config.yaml", "a: [", "config.yaml"),
        ("manifest.json", '{"id": "another"}', "manifest.json: belongs to another run"),
        ("metrics.jsonl", '{"step": 1}\n{"st', "metrics.jsonl: the last line is torn"),
        ("metrics.jsonl", "nonsense\n{}\n", "metrics.jsonl: line 1 is not valid JSON"),
        ("extra.json", "{", "extra.json: not valid JSON"),
    ],
)
def test_verify_also_reads_what_has_no_hash(
    capsys: pytest.CaptureFixture[str], name: str, content: str, part: str
) -> None:
    study, plan = ran()
    folder = study / plan.runs[0].folder
    (folder / name).write_text(content)
    result = files.read_json(folder / "result.json")
    files.write_json(folder / "result.json", {**result, "artifacts": {}})
    assert part in output(capsys, "verify", code=1)


# rerun


def test_rerun_agrees_and_leaves_the_record_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, plan = open_study(expand(["model=tiny", "threads=2"]))
    run_jobs(plan, study)
    folder = study / plan.runs[0].folder
    before = {path: path.read_bytes() for path in folder.iterdir()}
    out = output(capsys, "rerun", str(folder), "--keep", "again")
    assert "all agree bit for bit" in out and int(out.split(" values")[0].split()[-1]) > 100
    assert before == {path: path.read_bytes() for path in folder.iterdir()}
    assert state_of(here / "again").result.threads == 2
    assert main(["rerun", str(folder), "--keep", "again"]) == 2


def test_rerun_says_where_numbers_differ(capsys: pytest.CaptureFixture[str]) -> None:
    study, plan = open_study(expand(["model=tiny"]))
    run_jobs(plan, study)
    folder = study / plan.runs[0].folder
    result = files.read_json(folder / "result.json")
    result["metrics"]["loss"] += 1e-9
    result["code"]["torch"] = "1.0"
    files.write_json(folder / "result.json", result)
    (folder / "layers.csv").write_text((folder / "layers.csv").read_text().replace("grad_norm,", "grad_norm,9", 1))
    out = output(capsys, "rerun", plan.runs[0].id[:12], code=1)
    assert "2 differences" in out and "    loss: " in out and "relative difference" in out
    assert "    layers.csv, row " in out and "changed since: torch 1.0 -> " in out


def test_rerun_needs_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    study, plan = ran()
    (study / plan.runs[0].folder / "result.json").unlink()
    refused_command(capsys, "rerun", study / plan.runs[0].folder, code="rerun-not-finished", state="crashed")


# what is no run


@pytest.mark.parametrize("command", ["rerun", "explain-id"])
def test_a_folder_that_is_no_run_is_said_to_be_none(
    here: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    study, plan = ran()
    (here / "empty").mkdir()
    (here / "file.txt").write_text("")
    run = study / plan.runs[0].folder
    for word, code, facts in (
        ("empty", "not-a-run", {"folder": Path("empty")}),
        (str(study), "run-is-a-study", {"folder": study, "inside": run}),
        ("file.txt", "run-is-a-file", {"word": "file.txt", "parent": Path(".")}),
        (str(run / "result.json"), "run-is-a-file", {"parent": run}),
        ("gone", "run-not-found", {"word": "gone", "output_dir": Path("outputs")}),
    ):
        refused_command(capsys, command, word, code=code, **facts)


@pytest.mark.parametrize("command", ["verify", "ls", "gc"])
def test_what_is_no_folder_of_runs_is_said_to_be_none(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (here / "empty").mkdir()
    (here / "file.txt").write_text("")
    refused_command(capsys, command, "gone", code="no-such-folder", value="gone")
    refused_command(capsys, command, "file.txt", code="folder-is-a-file", value="file.txt", suggestion=".")
    if command == "verify":
        refused_command(capsys, command, "empty", code="verify-no-run", value="empty")
    else:
        assert main([command, "empty"]) == 0
        said = capsys.readouterr()
        assert {"ls": "No runs in empty.", "gc": "0 found"}[command] in said.out + said.err
    monkeypatch.setattr("os.access", lambda path, mode: False)
    refused_command(capsys, command, "empty", code="folder-not-readable", value="empty")


# gc


def test_gc_lists_and_removes_only_when_told(capsys: pytest.CaptureFixture[str]) -> None:
    study, plan = ran("seed=1,2")
    one, two = (study / run.folder for run in plan.runs)
    orphan = one / ".layers.csv.123.0123abcd.tmp"
    orphan.write_text("half")
    files.write_json(two / "result.json", {**files.read_json(two / "result.json"), "state": "failed"})
    (study / ".runs.csv.123.0123abcd.tmp").write_text("of a write that is going on")
    out = output(capsys, "gc")
    assert str(orphan) in out and "1 found" in out and "--yes" in out and orphan.exists()
    assert "2 found" in output(capsys, "gc", "--state", "failed")
    out = output(capsys, "gc", str(study), "--state", "failed,crashed", "--yes")
    assert "2 of 2 removed" in out
    assert not orphan.exists() and not two.exists() and one.exists()
    assert state_of(one).name == "finished"


def test_gc_never_takes_a_run_from_a_living_process(capsys: pytest.CaptureFixture[str]) -> None:
    from gptlab.store import locks

    study, plan = ran()
    folder = study / plan.runs[0].folder
    with locks.claim(study, lambda: folder):
        assert "0 of 1 removed" in output(capsys, "gc", "--state", "finished", "--yes")
    assert state_of(folder).name == "finished"
    for state in ("running", "planned", "fnished"):
        assert main(["gc", "--state", state]) == 2


# P11: reading


def test_a_read_only_copy_can_be_read(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study, plan = ran("seed=1,2")
    (study / plan.runs[1].folder / "result.json").unlink()
    copy = Path(shutil.copytree("outputs", "copy"))
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}

    def read_only(operation: str, path: Path) -> None:
        raise OSError(30, os.strerror(30), str(path))

    with hooked(read_only):
        out = output(capsys, "ls", "copy", "--where", "model.emb_dim == 32")
        assert "1 finished, 1 crashed" in out
        output(capsys, "verify", "copy")
        output(capsys, "explain-id", str(next(find_runs(copy))))
        output(capsys, "gc", "copy")
        output(capsys, "plan", *FAST, "seed=1,2", "output_dir=copy")
    assert before == {path: path.stat().st_mtime_ns for path in copy.rglob("*")}


def test_a_reader_in_a_loop_while_runs_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    from gptlab.show.listing import list_runs

    study, plan = open_study(expand([*FAST, "seed=range(0,20)"]))
    seen: set[str] = set()
    problems: list[object] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            try:
                rows = list_runs("outputs")
                seen.update(row.state for row in rows)
                problems.extend(row for row in rows if row.state not in ("planned", "running", "finished"))
                problems.extend([len(rows)] if len(rows) != 20 else [])
                for folder in find_runs(study):
                    for path in folder.glob("*.json"):
                        if not path.name.startswith("."):
                            json.loads(path.read_text())
            except FileNotFoundError:
                pass  # a lock between the listing of names and the reading
            except Exception as error:
                problems.append(error)

    reader = threading.Thread(target=look)
    reader.start()
    for run in plan.runs:
        perform(run, study)
        time.sleep(0.005)
    done.set()
    reader.join()
    assert problems == [] and {"planned", "finished"} <= seen


# P8


def test_a_fresh_process_measures_the_same_bit_for_bit(here: Path) -> None:
    study, plan = open_study(expand(["model=tiny", "seed=5"]))
    run_jobs(plan, study)
    from tests.support.faults import python

    code = "import sys; from gptlab.cli import main; sys.exit(main(sys.argv[1:]))"
    python(code, "model=tiny", "seed=4,5", "output_dir=other")
    one, two = (Path(place) / "runs" / plan.runs[0].folder for place in ("outputs", "other"))
    assert state_of(one).result.metrics == state_of(two).result.metrics
    for name in ("layers.csv", "tensors.csv", "generation.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes()


# P14


def test_nothing_that_is_loaded_can_run_code() -> None:
    found = []
    for path in Path(gptlab.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [getattr(node, "module", None), *(alias.name for alias in node.names)]
                found += [f"{path.name}: import {name}" for name in names if name in ("dill", "joblib", "shelve")]
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            call = ast.unparse(node.func)
            if call == "yaml.load" and "SafeLoader" in ast.unparse(node):
                continue
            if call == "np.load" and any(k.arg == "allow_pickle" for k in node.keywords):
                found.append(f"{path.name}:{node.lineno} {call}")
            safe = any(k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in node.keywords)
            if (call == "torch.load" and not safe) or call in (
                "yaml.load",
                "yaml.unsafe_load",
                "pickle.load",
                "pickle.loads",
            ):
                found.append(f"{path.name}:{node.lineno} {call}")
    assert found == []


# P15


def test_the_frozen_store_of_schema_1_stays_readable(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = shutil.copytree(STORE, here / "store")
    out = output(capsys, "ls", str(copy))
    assert "2 finished, 1 failed, 1 interrupted, 1 crashed, 1 planned" in out
    assert "loss 5.8" in out
    out = output(capsys, "verify", str(copy))
    assert "all intact" in out and "2 finished" in out
    assert output(capsys, "ls", str(copy), "--where", "model.norm_placement == post", "--columns", "label").split() == [
        "label", "post_ln",
    ]  # fmt: skip
    states = {state_of(folder).name for folder in find_runs(Path(copy))}
    assert states == {"finished", "failed", "interrupted", "crashed"}
    for folder in find_runs(Path(copy)):
        result = state_of(folder).result
        if result.id:
            stored = read_config(folder)
            assert has_identity(stored, result.id), "an id is for ever"


def test_the_frozen_store_has_a_table(here: Path) -> None:
    from gptlab.show.finish import finish_study

    copy = Path(shutil.copytree(STORE / "frozen", here / "frozen"))
    with open(os.devnull, "w") as nowhere:
        study = finish_study(copy, file=nowhere)
    assert study.runs.set_index("label").loc["post_ln", "state"] == "finished"


def test_a_newer_schema_is_refused_clearly(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, plan = ran()
    path = study / plan.runs[0].folder / "result.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'))
    assert "schema 2, written by a newer gptlab; this one reads up to 1" in output(capsys, "ls")
    assert execute.RESULT_SCHEMA == 1
