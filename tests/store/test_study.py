from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gptlab.store.study import load_study, write_tables
from tests.support.refusals import refused
from tests.support.synthetic import BASELINE, GROUPS, TWELVE, Variant, make_study

FAILED, CRASHED, PLANNED = (
    Variant("boom", state="failed", error="ValueError: no\nsecond line"),
    Variant("gone", state="crashed"),
    Variant("later", state="planned"),
)


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(folder.rglob("*")) if p.is_file()}


def run_folder(study: Path, label: str) -> Path:
    return next(path for path in study.iterdir() if path.name.startswith(f"{label}-s"))


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_one_row_per_planned_run_with_its_state(tmp_path: Path) -> None:
    study = load_study(make_study(tmp_path, [PLANNED, CRASHED, FAILED, BASELINE, TWELVE[1]]))
    runs = study.runs.set_index("label")
    assert list(runs.index) == ["none", "later", "gone", "boom", "post_ln"]  # the baseline first, then as planned
    assert dict(runs["state"]) == {
        "none": "finished", "later": "planned", "gone": "crashed", "boom": "failed", "post_ln": "finished",
    }  # fmt: skip
    assert list(runs["is_baseline"]) == [True, False, False, False, False]
    assert runs["baseline"].nunique() == 1
    assert runs["run"].str.fullmatch("r[0-9a-f]{8}").all()
    assert runs.loc["post_ln", "changed"] == "norm_placement: pre -> post"
    assert runs.loc["none", "parameters"] == sum(GROUPS.values()) == 163_009_536
    assert runs.loc["boom", "error"] == "ValueError: no\nsecond line"
    assert "result.json is missing" in runs.loc["gone", "error"]
    assert study.has_baseline


def test_long_frames_carry_run_label_and_seed(tmp_path: Path) -> None:
    study = load_study(make_study(tmp_path, [BASELINE, TWELVE[3]], seeds=(7, 5)))
    assert list(zip(study.runs["label"], study.runs["seed"], strict=True)) == [
        ("none", 5), ("none", 7), ("relu", 5), ("relu", 7),
    ]  # fmt: skip
    assert list(study.layers.columns) == ["run", "label", "seed", "step", "layer", "part", "metric", "value"]
    head = study.layers[study.layers["part"] == "head"]
    assert head["layer"].isna().all()
    assert list(study.generations.columns) == [
        "run",
        "label",
        "seed",
        "step",
        "position",
        "token_id",
        "token",
        "margin",
    ]
    assert len(study.generations) == 40
    depth = study.depth("grad_norm")
    assert set(depth["part"]) == {"all"}
    assert list(depth["layer"][:12]) == list(range(12))


def damage_result(folder: Path) -> str:
    (folder / "result.json").write_text("")
    return "result.json: not valid JSON"


def truncate_result(folder: Path) -> str:
    (folder / "result.json").write_text((folder / "result.json").read_text()[:-20])
    return "result.json: not valid JSON"


def binary_result(folder: Path) -> str:
    (folder / "result.json").write_bytes(b"\xff\xfe\x00\x01")
    return "result.json: not text in UTF-8"


def list_result(folder: Path) -> str:
    (folder / "result.json").write_text("[1]")
    return "result.json: not a JSON object"


def newer_result(folder: Path) -> str:
    rewrite(folder / "result.json", schema=2)
    return "result.json: schema 2, written by a newer gptlab"


def unknown_state(folder: Path) -> str:
    rewrite(folder / "result.json", state="splendid")
    return "result.json: state 'splendid' not understood"


def dangling_result(folder: Path) -> str:
    (folder / "result.json").unlink()
    (folder / "result.json").symlink_to("nowhere")
    return "result.json is missing"


def missing_layers(folder: Path) -> str:
    (folder / "layers.csv").unlink()
    return "layers.csv is missing"


def altered_layers(folder: Path) -> str:
    text = (folder / "layers.csv").read_text()
    (folder / "layers.csv").write_text(text.replace("0.", "1.", 1))
    return "layers.csv: not as the run wrote it"


def truncated_layers(folder: Path) -> str:
    text = (folder / "layers.csv").read_text()
    (folder / "layers.csv").write_text(text[: text.rindex(",")])
    rewrite(folder / "result.json", artifacts={})
    return "layers.csv: line 101 cannot be read"


def other_columns(folder: Path) -> str:
    (folder / "layers.csv").write_text("a,b\n1,2\n")
    rewrite(folder / "result.json", artifacts={})
    return "layers.csv: no column layer, metric, part, step, value"


def short_generation(folder: Path) -> str:
    rewrite(folder / "generation.json", margins=[1.0])
    rewrite(folder / "result.json", artifacts={})
    return "generation.json: not as it should be"


@pytest.mark.parametrize(
    "damage",
    [
        damage_result, truncate_result, binary_result, list_result, newer_result, unknown_state, dangling_result,
        missing_layers, altered_layers, truncated_layers, other_columns, short_generation,
    ],
)  # fmt: skip
def test_a_bad_file_costs_its_own_run_and_nothing_is_written(tmp_path: Path, damage: Callable[[Path], str]) -> None:
    folder = make_study(tmp_path, TWELVE[:3])
    message = damage(run_folder(folder, "post_ln"))
    before = snapshot(folder)
    study = load_study(folder)
    runs = study.runs.set_index("label")
    assert runs.loc["post_ln", "state"] == "damaged"
    assert message in runs.loc["post_ln", "error"]
    assert list(runs.loc[["none", "no_shortcut"], "state"]) == ["finished", "finished"]
    assert study.layers["label"].isin(["none", "no_shortcut"]).sum() == 2 * 100
    assert snapshot(folder) == before


@pytest.mark.parametrize("content", ["", "{", "[]", '{"runs": 3}', '{"runs": [{"id": 1}]}', '{"schema": 9}'])
def test_a_damaged_plan_is_rebuilt_from_the_run_folders(tmp_path: Path, content: str) -> None:
    folder = make_study(tmp_path, TWELVE[:3])
    (folder / "plan.json").write_text(content)
    study = load_study(folder)
    assert set(study.runs["label"]) == {"none", "post_ln", "no_shortcut"}
    assert study.runs["state"].eq("finished").all()
    assert "plan.json" in study.plan.problem
    assert not study.has_baseline


def test_a_plan_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    folder = make_study(tmp_path, [BASELINE])
    plan = json.loads((folder / "plan.json").read_text())
    plan["runs"][0]["folder"] = "../../elsewhere"
    (folder / "plan.json").write_text(json.dumps(plan))
    assert "is not a name" in load_study(folder).plan.problem


def test_no_study_is_a_short_message(tmp_path: Path) -> None:
    with refused("not-a-study", folder=tmp_path, damage="plan.json is missing"):
        load_study(tmp_path)


def test_a_metric_that_was_not_finite_is_told_from_one_not_measured(tmp_path: Path) -> None:
    folder = make_study(tmp_path, TWELVE[:2])
    path = run_folder(folder, "post_ln") / "result.json"
    metrics = json.loads(path.read_text())["metrics"]
    rewrite(path, metrics={**metrics, "loss": None})
    runs = load_study(folder).runs.set_index("label")
    assert runs.loc["post_ln", "not_finite"] == "loss"
    assert runs.loc["none", "not_finite"] == ""


def test_a_probe_that_was_off_leaves_its_columns_out(tmp_path: Path) -> None:
    folder = make_study(tmp_path, [replace(BASELINE, words=())])
    path = run_folder(folder, "none")
    (path / "layers.csv").unlink()
    rewrite(path / "result.json", artifacts={}, metrics={"parameters": 5})
    study = load_study(folder)
    assert "loss" not in study.runs
    assert study.layers.empty
    assert study.generations.empty
    assert list(study.runs["state"]) == ["finished"]


def test_csv_round_trip_with_newlines_quotes_and_formulas(tmp_path: Path) -> None:
    words = ["=1+1", 'a "quoted", b', "x\ny", "x\r\ny\rz", "@sum", "-5", "\ud800", " plain"]
    hostile = replace(BASELINE, words=words, label="=evil()")
    folder = make_study(tmp_path, [hostile, FAILED], baseline="=evil()")
    paths = write_tables(load_study(folder))
    assert [path.name for path in paths] == ["runs.csv", "layers.csv", "generations.csv"]
    with (folder / "generations.csv").open(newline="", encoding="utf-8") as file:
        tokens = [row["token"] for row in csv.DictReader(file)]
    assert tokens == ["'=1+1", 'a "quoted", b', "x\ny", "x\r\ny\rz", "'@sum", "'-5", "\\ud800", " plain"]
    with (folder / "runs.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["label"] == "'=evil()"
    assert rows[0]["parameters"] == "163009536"  # whole, although the failed run has none
    assert rows[1]["parameters"] == ""
    assert float(rows[0]["loss"]) == hostile.loss


def test_negative_numbers_are_not_taken_for_formulas(tmp_path: Path) -> None:
    folder = make_study(tmp_path, [replace(BASELINE, loss=-1.5)])
    write_tables(load_study(folder))
    with (folder / "runs.csv").open(newline="", encoding="utf-8") as file:
        assert next(csv.DictReader(file))["loss"] == "-1.5"


def test_tables_are_rebuilt_from_files_alone(tmp_path: Path) -> None:
    folder = make_study(tmp_path, TWELVE[:2])
    first = [path.read_bytes() for path in write_tables(load_study(folder))]
    moved = tmp_path / "moved"
    os.rename(folder, moved)
    assert [path.read_bytes() for path in write_tables(load_study(moved))] == first
