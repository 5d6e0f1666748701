"""Has it been tried before? Changes are found by what they changed, in every study of a folder."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gptlab.cli import main
from gptlab.comparing.assemble import compare
from gptlab.comparing.ledger import changes_key, is_ablation, ledger
from gptlab.store.upkeep import marks
from tests.support.refusals import refused_command
from tests.support.seeded import Arm, make_seeded

SEEDS = (1, 2, 3, 4, 5)


def values(mean: float) -> dict[int, float | None]:
    return {seed: mean + 0.1 * seed for seed in SEEDS}


def noisy(mean: float) -> dict[int, float | None]:
    return {seed: mean + 0.1 * seed + 0.01 * (-1) ** seed * seed for seed in SEEDS}


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    """Two studies of ReLU, one of which calls it otherwise, one of two changes at once, and one that is damaged."""
    relu: dict[str, Any] = {"activation": "relu"}
    base = Arm("none", noisy(3))
    wide = Arm("wide", noisy(3), {"expansion": 8.0})
    make_seeded(tmp_path, [base, Arm("relu", noisy(2.9), relu)], name="first")
    make_seeded(tmp_path, [base, Arm("hard", values(3.2), relu), wide], name="second")
    make_seeded(tmp_path, [base, Arm("relu+rms", noisy(3), {**relu, "norm": "rmsnorm"})], name="both")
    broken = make_seeded(tmp_path, [Arm("none", values(3)), Arm("x", values(3), {"norm": "none"})], name="broken")
    plan = json.loads((broken / "plan.json").read_text())
    plan["runs"][-1]["label"] = "none"
    plan["runs"][-1]["seed"] = 1
    (broken / "plan.json").write_text(json.dumps(plan))
    return tmp_path


def found(outputs: Path, *filters: Any) -> set[tuple[str, str]]:
    return {(entry.row.study, entry.row.label) for entry in ledger(outputs, filters)[0]}


def test_every_change_of_every_study_with_what_compare_says_of_it(outputs: Path) -> None:
    entries, problems = ledger(outputs)
    assert found(outputs) == {("first", "relu"), ("second", "hard"), ("second", "wide"), ("both", "relu+rms")}
    (problem,) = problems
    assert "broken" in problem
    for entry in entries:
        row = compare([entry.folder]).row(entry.row.label)
        assert entry.cell == row.cell("final_loss")
        assert entry.row.delta == row.delta
    assert {entry.cell.verdict for entry in entries} >= {"worse", "no clear difference"}


def test_one_kind_of_change_stands_together(outputs: Path) -> None:
    kinds = [json.dumps(entry.to_json()["change"]) for entry in ledger(outputs)[0]]
    assert len(set(kinds)) == 3 and len(kinds) == 4
    places = [place for place, kind in enumerate(kinds) if kinds.count(kind) == 2]
    assert places[1] - places[0] == 1


def test_filters_ask_for_what_was_changed_whatever_it_was_called(outputs: Path) -> None:
    relu = {("first", "relu"), ("second", "hard"), ("both", "relu+rms")}
    assert found(outputs, changes_key("model.activation")) == relu
    assert found(outputs, changes_key("model.activation", "relu")) == relu
    assert found(outputs, changes_key("model.activation", "gelu")) == set()
    assert found(outputs, changes_key("model.expansion", "8")) == {("second", "wide")}
    both = (changes_key("model.activation"), changes_key("model.norm", "rmsnorm"))
    assert found(outputs, *both) == {("both", "relu+rms")}
    assert found(outputs, is_ablation("relu", {"model.activation": "relu"})) == relu
    assert found(outputs, is_ablation("rms", {})) == {("both", "relu+rms")}, "by its name alone"
    assert found(outputs, is_ablation("none", {})) == set()


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[str, str]:
    assert main(["ledger", *map(str, words)]) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_the_command_finds_an_ablation_by_what_it_sets(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, outputs, "ablation=relu", "--format", "json")
    document = json.loads(out)
    assert {entry["variant"] for entry in document["entries"]} == {"relu", "hard", "relu+rms"}
    assert (document["schema"], document["asked"]) == (1, ["ablation=relu"])
    out, _ = run(capsys, outputs, "ablation=[relu,rmsnorm]", "--format", "json")
    assert [entry["variant"] for entry in json.loads(out)["entries"]] == ["relu+rms"]
    out, _ = run(capsys, outputs, "activation=relu", "expansion", "--format", "json")
    assert json.loads(out)["entries"] == []


def test_the_forms_say_the_same(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = json.loads(run(capsys, outputs, "--format", "json")[0])["entries"]
    out, err = run(capsys, outputs, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert list(rows[0]) == list(entries[0]) and "broken" in err
    assert [float(row["difference"]) for row in rows] == [entry["difference"] for entry in entries]
    table, _ = run(capsys, outputs)
    lines = run(capsys, outputs, "--format", "md")[0].splitlines()[2:]
    assert len(lines) == len(rows) == 4
    for line, row in zip(lines, rows, strict=True):
        assert row["study"] in line and row["verdict"] in line
    assert table.count("activation: gelu_tanh -> relu") >= 1 and "worse" in table
    assert run(capsys, outputs, "model.tie_weights")[0].startswith("No study in ")


def test_the_documented_keys_are_those_of_the_json(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = json.loads(run(capsys, outputs, "--format", "json")[0])["entries"]
    page = (Path(__file__).parents[2] / "docs" / "daily.md").read_text(encoding="utf-8")
    part = page.split("## What was tried before")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE) == list(entries[0])


def test_archived_runs_count_and_are_said(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = next((outputs / "first").iterdir())
    before = ledger(outputs, [changes_key("model.activation")])[0]
    for folder in compare([study]).row("relu").folders[:2]:
        marks.archived(folder)
    after = ledger(outputs, [changes_key("model.activation")])[0]
    assert [entry.cell for entry in after] == [entry.cell for entry in before]
    assert sorted(entry.archived for entry in after) == [0, 0, 2]
    assert "2 archived" in run(capsys, outputs)[0]


@pytest.mark.parametrize(
    ("word", "code", "facts"),
    [
        ("model.nrom", "unknown-name", {"key": "ledger", "suggestion": "model.norm"}),
        ("ablation=reluu", "unknown-name", {"key": "ablation", "suggestion": "relu"}),
        ("model.norm=", "ledger-value", {"key": "model.norm"}),
        ("no/such", "no-such-folder", {"value": "no/such"}),
    ],
)
def test_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str, code: str, facts: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    refused_command(capsys, "ledger", word, code=code, **facts)
