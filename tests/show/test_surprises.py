"""What surprises is explained under the table, and only where it is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from gptlab.cli import dispatch
from gptlab.show.surprises import PAGE, surprises
from gptlab.store.study import load_study

ROOT = Path(__file__).parents[2]


def notes(words: list[str], folder: str) -> list[str]:
    assert dispatch(["model=tiny", *words]) == 0
    return surprises(load_study(Path("outputs", folder)))


def test_larger_gradients_and_a_tied_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = notes(["ablation=none,no_shortcut,tied_unscaled,relu", "experiment.name=x"], "x")
    assert [note.partition(":")[0] for note in found] == ["no_shortcut", "tied_unscaled"]
    assert all(PAGE in note for note in found) and (ROOT / PAGE).exists()
    printed = " ".join(capsys.readouterr().out.split())
    assert all(f"Note: {note}" in printed for note in found)


def test_dropout_of_a_single_untrained_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [note.partition(":")[0] for note in notes(["model.drop_rate=0.5"], "runs")] == ["drop_rate=0.5"]
    assert notes(["seed=5", "output_dir=outputs/other"], "other/runs") == []
