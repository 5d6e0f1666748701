"""metrics.jsonl survives torn lines, and holds no step twice."""

from __future__ import annotations

import json
import math
from pathlib import Path

from gptlab.store.names import HISTORY
from gptlab.training.budget import Spent
from gptlab.training.history import History, read


def write(folder: Path, *steps: int, after: int | None = None) -> None:
    history = History(folder, after)
    for step in steps:
        history.append(Spent(step, step * 10, step * 2.5, step / 3), {"train_loss": 1 / (step + 1), "excess": None})
    history.close()


def test_lines(tmp_path: Path) -> None:
    write(tmp_path, 0, 1)
    first, second = (json.loads(line) for line in (tmp_path / HISTORY).read_text().splitlines())
    assert first == {"step": 0, "tokens": 0, "flops": 0.0, "seconds": 0.0, "metrics": {"train_loss": 1.0}}
    assert second["metrics"]["train_loss"] == 0.5 and second["seconds"] == round(1 / 3, 6)


def test_a_line_is_there_as_soon_as_it_is_written(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.append(Spent(5), {})
    assert [line["step"] for line in read(tmp_path)] == [5]
    history.close()


def test_what_comes_after_the_checkpoint_goes(tmp_path: Path) -> None:
    write(tmp_path, 0, 10, 20, 30)
    write(tmp_path, 25, after=20)
    assert [line["step"] for line in read(tmp_path)] == [0, 10, 20, 25]


def test_a_torn_last_line_goes(tmp_path: Path) -> None:
    write(tmp_path, 0, 10, 20)
    path = tmp_path / HISTORY
    for cut in (1, 5, 30):
        path.write_text(path.read_text()[:-cut])
        assert [line["step"] for line in read(tmp_path)] == [0, 10]
    write(tmp_path, 20, after=15)
    assert [line["step"] for line in read(tmp_path)] == [0, 10, 20]


def test_a_new_start_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path, 0, 10)
    write(tmp_path, 0)
    assert [line["step"] for line in read(tmp_path)] == [0]


def test_what_is_not_finite_comes_back(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.append(Spent(1), {"train_loss": math.nan, "grad_norm": math.inf})
    history.close()
    assert read(tmp_path)[0]["metrics"] == {"train_loss": "nan", "grad_norm": "inf"}
