"""TensorBoard gets what metrics.jsonl gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from gptlab.identity import identity
from tests.support.training import numbers, toy, trained

pytest.importorskip("tensorboard")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # tensorboard's own


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {name: {event.step: event.value for event in events.Scalars(name)} for name in events.Tags()["scalars"]}


def test_the_same_numbers_as_in_the_lines(tmp_path: Path) -> None:
    trained(toy("tracker=tensorboard"), tmp_path)
    expected: dict[str, dict[int, float]] = {}
    for line in numbers(tmp_path):
        for name, value in line["metrics"].items():
            expected.setdefault(name, {})[line["step"]] = pytest.approx(value, rel=1e-6)  # float32 there
    assert scalars(tmp_path) == expected


def test_a_resumed_run_has_each_step_once(tmp_path: Path) -> None:
    config = toy("tracker=tensorboard", "train.checkpoint_every=3")
    trained(config, tmp_path)
    trained(config, tmp_path, resume=True)
    assert set(scalars(tmp_path)["validation_loss"]) == {0, 4, 8, 12}


def test_without_a_tracker_there_are_no_event_files_and_it_is_the_same_run(tmp_path: Path) -> None:
    trained(toy(), tmp_path)
    assert not (tmp_path / "tensorboard").exists()
    assert identity(toy()) == identity(toy("tracker=tensorboard"))
