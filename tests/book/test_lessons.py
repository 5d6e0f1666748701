"""The lesson and the exercises, as a class follows them: each command runs, each number that a page says is true."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path

import pytest

from tests.check.test_documented_steps import paste
from tests.support.fences import ROOT
from tests.support.lessons import Step, numbers_of_prose, steps

LESSON, EXERCISES = "docs/chapter4-in-class.md", "docs/exercises.md"
STUDY = ROOT / "experiments" / "chapter4"
CELL = re.compile(r"^\| (\w+) \| ([\d,]+) \| ([\d.]+) \| ([\d.]+)(?:, x([\d.]+))? \| `(.*)` \|$", re.MULTILINE)
# What prose derives rather than shows.
DERIVED = {
    "589,824": 768 * 768, "2,359,296": 768 * 3072, "3,072": 4 * 768, "768": 12 * 64, "3072": 4 * 768,
    "402,056": 2 * 4 * 50257, "411,705,344": 8 * 1024 * 50257, "163": round(163_009_536 / 1e6),
    "10.825": round(math.log(50257), 3), "50,257": 50257,
}  # fmt: skip
# Of a batch, a lesson, or another page: its number is tested there (experiments/gradient_flow/summary.csv).
GIVEN = {"1024", "45", "500", "93", "16", "15", "64", "408"}


def follow(page: str, folder: Path) -> None:
    for step in steps(page):
        done = paste(step.commands, folder)
        assert done.returncode == 0, step.commands + done.stdout + done.stderr
        assert step.missing(done.stdout) == [], step.commands + done.stdout


@pytest.mark.slow
def test_the_exercises(tmp_path: Path) -> None:
    follow(EXERCISES, tmp_path)


@pytest.mark.slow
def test_the_lesson_and_the_tables_of_the_study(tmp_path: Path) -> None:
    follow(LESSON, tmp_path)
    folders = {path.parent.name.partition("-s")[0]: path.parent for path in tmp_path.rglob("chapter4/*/result.json")}
    results = {name: json.loads((folder / "result.json").read_text()) for name, folder in folders.items()}
    texts = {name: json.loads((folder / "generation.json").read_text())["new_text"] for name, folder in folders.items()}
    assert len(results) == 5
    for row in _committed():
        for key in (
            "parameters",
            "loss",
            "grad_norm_first",
            "grad_norm_last",
            "grad_norm",
            "grad_mean_abs",
            "logit_std",
        ):
            if row["label"] in results:
                found = results[row["label"]]["metrics"][key]
                assert found == pytest.approx(float(row[key]), rel=2e-4), (row["label"], key)
    for page in (ROOT / "README.md", STUDY / "README.md"):
        said = {cells[0]: cells[5] for cells in CELL.findall(page.read_text())}
        assert {name: said[name] for name in texts} == texts


@pytest.mark.parametrize("page", [ROOT / "README.md", STUDY / "README.md"], ids=["README", "chapter4"])
def test_the_printed_tables_are_the_committed_numbers(page: Path) -> None:
    rows = {row["label"]: row for row in _committed()}
    cells = CELL.findall(page.read_text(encoding="utf-8"))
    assert len(cells) == (15 if page.parent == STUDY else 5)
    first = float(rows["baseline"]["grad_norm_first"])
    for label, parameters, loss, gradient, ratio, _ in cells:
        row = rows[label]
        assert parameters == f"{int(row['parameters']):,}"
        assert loss == f"{float(row['loss']):.{len(loss.partition('.')[2])}f}"
        assert gradient == f"{float(row['grad_norm_first']):.2f}"
        assert ratio == ("" if label == "baseline" else f"{float(row['grad_norm_first']) / first:.2f}")


@pytest.mark.parametrize("page", [LESSON, EXERCISES])
def test_every_number_is_shown_or_derived(page: str) -> None:
    shown = " ".join(line for step in steps(page) for line in step.shown)
    for number in numbers_of_prose(page):
        if number in DERIVED:
            assert float(number.replace(",", "")) == DERIVED[number]
        else:
            assert number in GIVEN or number in shown, number
    assert 4 * DERIVED["589,824"] + 768 == 2_360_064 and 2 * DERIVED["2,359,296"] + 3072 + 768 == 4_722_432


def test_each_command_shows_something() -> None:
    """But the last one of the lesson, which the class reads by itself."""
    assert [step.commands.split()[1] for page in (LESSON, EXERCISES) for step in steps(page) if not step.shown] == [
        "compare"
    ]


def test_a_wrong_line_is_missed() -> None:
    step = Step("", "", ("a   1.50 ... 7", "b 1,000"), trained=False)
    assert step.missing("a  1.51  x y  7\nb 1,000") == []
    assert step.missing("a  1.53  x y  7\nb 1,001") == list(step.shown)
    assert step.missing("a  1.50  x y  8\nc 1,000") == list(step.shown)
    trained = Step("", "", ("a 0.544 ... +2.9 0/3",), trained=True)
    assert trained.missing("a 0.55 z +3.4 0/3") == [] and trained.missing("a 0.55 z -3.4 0/3") == list(trained.shown)


def _committed() -> list[dict[str, str]]:
    with (STUDY / "runs.csv").open(newline="") as file:
        return list(csv.DictReader(file))
