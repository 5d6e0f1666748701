from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

from gptlab.results import list_runs, print_runs
from tests.results.synthetic import BASELINE, TWELVE, Variant, make_study


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
    assert listed(tmp_path / "nothing") == f"No runs in {tmp_path / 'nothing'}.\n"


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
        "import sys; from gptlab.results import print_runs; print_runs(sys.argv[1]); "
        "sys.exit(str({'pandas', 'matplotlib', 'torch', 'numpy'} & set(sys.modules) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
    assert "163,009,536 parameters" in done.stdout
