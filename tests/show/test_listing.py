from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gptlab.cli import main
from gptlab.show.listing import list_runs, print_runs
from gptlab.store.study import load_study
from tests.support.refusals import refused_command
from tests.support.seeded import Arm, make_seeded
from tests.support.synthetic import BASELINE, TWELVE, Variant, make_study


def listed(folder: Path) -> str:
    out = io.StringIO()
    print_runs(folder, 100, out)
    return out.getvalue()


def test_newest_study_first_runs_in_their_order(tmp_path: Path) -> None:
    make_study(tmp_path, TWELVE[:2], name="old", stamp="2025-12-31_23-59-59-999999")
    new = make_study(tmp_path, [BASELINE], name="new", stamp="2026-01-01_00-00-00-000000")
    rows = list_runs(tmp_path)
    assert [(row.study, row.label) for row in rows] == [("new", "none"), ("old", "none"), ("old", "post_ln")]
    assert (rows[0].when, rows[0].seed, rows[0].state) == ("2026-01-01 00:00:00", 123, "finished")
    assert (rows[0].parameters, rows[0].loss, rows[0].seconds) == (163_009_536, BASELINE.loss, 1.25)
    assert rows[0].folder.parent == new
    assert rows[0].folder.is_dir()


def test_one_study_or_one_experiment_can_be_listed_alone(tmp_path: Path) -> None:
    folder = make_study(tmp_path, [BASELINE], name="one")
    make_study(tmp_path, [BASELINE], name="two")
    assert len(list_runs(tmp_path)) == 2
    assert [row.study for row in list_runs(folder)] == ["one"]
    assert [row.study for row in list_runs(folder.parent)] == ["one"]


def test_every_state_is_a_row(tmp_path: Path) -> None:
    states = ("finished", "failed", "interrupted", "crashed", "planned")
    folder = make_study(tmp_path, [Variant(state, state=state, error="E: x\ny") for state in states], baseline=None)
    next(folder.glob("finished-*")).joinpath("result.json").write_text("{")
    text = listed(tmp_path)
    assert [row.state for row in list_runs(tmp_path)] == ["damaged", *states[1:]]
    assert "1 damaged, 1 failed, 1 interrupted, 1 crashed, 1 planned" in text
    assert "result.json: not valid JSON" in text
    assert "E: x\n" in text


def test_a_damaged_plan_costs_no_run_and_an_empty_one_is_a_row(tmp_path: Path) -> None:
    folder = make_study(tmp_path, [BASELINE], name="a")
    (folder / "plan.json").write_text("{")
    empty = tmp_path / "b" / "2026-01-02_03-04-05-000006"
    empty.mkdir(parents=True)
    (empty / "plan.json").write_text("{")
    assert sorted((row.study, row.label, row.state) for row in list_runs(tmp_path)) == [
        ("a", "none", "finished"),
        ("b", "", "damaged"),
    ]
    assert "plan.json: not valid JSON" in listed(tmp_path)


def test_no_folder_is_an_empty_list_and_a_sentence(tmp_path: Path) -> None:
    assert list_runs(tmp_path / "nothing") == []
    assert listed(tmp_path / "nothing").startswith(f"No runs in {tmp_path / 'nothing'}. (A run is a folder with ")


def test_a_run_s_folder_lists_that_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_study(tmp_path, [BASELINE, Variant("relu")])
    (run,) = folder.glob("relu-*")
    assert main(["ls", str(run), "--columns", "label", "--format", "csv"]) == 0
    assert capsys.readouterr().out == "label\nrelu\n"


def test_with_plan_and_result_damaged_the_name_of_the_folder_tells_the_seed(tmp_path: Path) -> None:
    folder = make_study(tmp_path, [BASELINE], name="a")
    (run,) = folder.glob("none-*")
    run.rename(folder / "none-s77-0123abcd")
    (folder / "odd").mkdir()
    for path in (folder / "plan.json", folder / "none-s77-0123abcd" / "result.json", folder / "odd" / "result.json"):
        path.write_text("{")
    assert {row.folder.name: (row.seed, row.state) for row in list_runs(tmp_path)} == {
        "none-s77-0123abcd": (77, "damaged"), "odd": (None, "damaged"),
    }  # fmt: skip
    assert "seed 77" in listed(tmp_path) and "seed 0" not in listed(tmp_path)


def test_a_history_that_was_cut_is_damage(tmp_path: Path) -> None:
    """By its size, which is cheap; `verify` looks at every byte."""
    folder = make_study(tmp_path, [BASELINE])
    (run,) = folder.glob("none-*")
    result = json.loads((run / "result.json").read_text())
    (run / "metrics.jsonl").write_text("{}\n{}\n")
    (run / "result.json").write_text(json.dumps({**result, "history_bytes": 6}))
    assert [row.state for row in list_runs(tmp_path)] == ["finished"]
    (run / "metrics.jsonl").write_text("{}\n")
    assert [(row.state, row.error) for row in list_runs(tmp_path)] == [
        ("damaged", "metrics.jsonl: has 3 bytes, and the run wrote 6")
    ]
    (run / "metrics.jsonl").unlink()
    assert [row.error for row in list_runs(tmp_path)] == ["metrics.jsonl: No such file or directory"]


def test_other_files_and_folders_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty" / "2026-01-02_03-04-05-000006").mkdir(parents=True)
    (tmp_path / "loop").symlink_to(tmp_path)
    assert list_runs(tmp_path) == []


def test_hostile_labels_are_escaped(tmp_path: Path) -> None:
    make_study(tmp_path, [Variant("a\x1b[31m[red]", state="failed", error="\x1b]0;x\x07")])
    text = listed(tmp_path)
    assert "\x1b" not in text
    assert "a\\x1b[31m[red]" in text


def test_listing_loads_neither_pandas_nor_matplotlib_nor_torch(tmp_path: Path) -> None:
    make_study(tmp_path, [BASELINE])
    code = (
        "import sys; from gptlab.show.listing import print_runs; print_runs(sys.argv[1]); "
        "sys.exit(str({'pandas', 'matplotlib', 'torch', 'numpy'} & set(sys.modules) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
    assert "163,009,536 parameters" in done.stdout


def cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["ls", *arguments]) == 0
    return capsys.readouterr().out


def test_conditions_sorting_and_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_study(tmp_path, TWELVE, seeds=(1, 2))
    assert len(list_runs(tmp_path)) == 2 * len(TWELVE)
    out = cli(
        capsys, str(tmp_path), "--where", "loss < 10.75 and seed == 1", "--columns", "label,loss", "--sort", "-loss"
    )
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["label", "loss"]
    assert [line[0] for line in lines[1:]] == ["tied", "post_ln+no_shortcut+relu"]
    assert float(lines[1][1]) > float(lines[2][1])
    out = cli(capsys, str(tmp_path), "--sort", "parameters,-seed", "--top", "3", "--columns=label,seed")
    assert [line.split() for line in out.splitlines()][1:] == [["tied", "2"], ["tied", "1"], ["expansion_2", "2"]]
    assert "wide_heads" in cli(capsys, str(tmp_path), "--where", "state == failed")
    assert "No runs" in cli(capsys, str(tmp_path), "--where", "seed == 99")


def test_the_formats_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_study(tmp_path, [BASELINE, Variant("=cmd()|x", state="failed", error="E: a | b\nc")])
    arguments = [str(tmp_path), "--columns", "label,seed,state,loss,error"]
    found = json.loads(cli(capsys, *arguments, "--format", "json"))
    assert found[0] == {"label": "none", "seed": 123, "state": "finished", "loss": BASELINE.loss, "error": ""}
    rows = list(csv.DictReader(io.StringIO(cli(capsys, *arguments, "--format=csv"))))
    assert rows[1]["label"] == "'=cmd()|x", "a spreadsheet must not run it"
    assert float(rows[0]["loss"]) == found[0]["loss"] and rows[1]["loss"] == ""
    lines = cli(capsys, *arguments, "--format", "md").splitlines()
    assert lines[1] == "| --- | --- | --- | --- | --- |" and len(lines) == 4
    assert lines[3].count(" | ") == 4 and "=cmd()\\|x" in lines[3] and "E: a \\| b c" in lines[3]


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        (["--where", "modle.norm == x"], "no-run-has-key", {"value": "modle.norm", "suggestion": "model.norm"}),
        (["--sort", "los"], "no-run-has-key", {"key": "--sort", "value": "los", "suggestion": "loss"}),
        (["--columns", "lable"], "no-run-has-key", {"key": "--columns", "value": "lable", "suggestion": "label"}),
        (["--top", "x"], "not-a-number", {"key": "--top", "value": "x"}),
        (["--format", "yaml"], "unknown-name", {"key": "--format", "value": "yaml"}),
        (["--where"], "option-value", {"key": "--where"}),
    ],
)
def test_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: str, facts: dict[str, Any]
) -> None:
    folder = make_study(tmp_path, [BASELINE])
    (manifest,) = [run / "manifest.json" for run in folder.glob("none-*")]
    manifest.write_text(json.dumps({"config": {"model": {"norm": "layernorm"}}}))
    refused_command(capsys, "ls", tmp_path, *arguments, code=code, **facts)


def test_runs_of_earlier_plans_are_listed_after_those_of_the_latest(tmp_path: Path) -> None:
    folder = make_study(tmp_path, TWELVE[:3])
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**plan, "runs": plan["runs"][1:2]}))
    assert [row.label for row in list_runs(tmp_path)] == ["post_ln", "no_shortcut", "none"]
    (folder / "plan.json").unlink()
    assert sorted(row.label for row in list_runs(tmp_path)) == ["no_shortcut", "none", "post_ln"]


def test_colours_are_for_terminals(tmp_path: Path) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    make_study(tmp_path, [BASELINE])
    out = Terminal()
    print_runs(tmp_path, None, out)
    assert "\x1b[32mfinished" in out.getvalue()
    assert "\x1b" not in listed(tmp_path)


def test_what_became_of_a_training_can_be_asked_for_and_is_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = [Arm("baseline", {1: 0.5, 2: 0.6}), Arm("post_ln", {1: 2.2, 2: 2.3}, outcome="collapsed")]
    folder = make_seeded(tmp_path, arms)
    asked = ("--where", "outcome == collapsed", "--columns", "label,seed,outcome")
    out = cli(capsys, str(folder), *asked)
    found = [line.split() for line in out.splitlines()][1:]
    assert found == [["post_ln", "1", "collapsed"], ["post_ln", "2", "collapsed"]]
    lines = [line for line in cli(capsys, str(folder)).splitlines() if " seed " in line]
    assert [("collapsed" in line) for line in lines] == [False, False, True, True]
    assert list(load_study(folder).runs["outcome"]) == ["ok", "ok", "collapsed", "collapsed"]
