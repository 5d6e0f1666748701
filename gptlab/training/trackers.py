"""Where the numbers go besides metrics.jsonl."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol


class Tracker(Protocol):
    """Is given what a line of metrics.jsonl holds."""

    def add(self, step: int, metrics: Mapping[str, float | None]) -> None: ...

    def close(self) -> None: ...


class NoTracker:
    """Goes nowhere."""

    def add(self, step: int, metrics: Mapping[str, float | None]) -> None:
        return

    def close(self) -> None:
        return


class TensorBoard:
    """Event files under tensorboard/ in the run's folder, for `tensorboard --logdir outputs`."""

    def __init__(self, folder: Path, after: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purge = None if after is None else after + 1  # points of a broken-off try, which come again
        self._writer: Any = SummaryWriter(folder / "tensorboard", purge_step=purge)

    def add(self, step: int, metrics: Mapping[str, float | None]) -> None:
        for name, value in metrics.items():
            if value is not None:
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


def open_tracker(name: str, folder: Path, after: int | None) -> Tracker:
    """The tracker that the config names. `after`: the step that a resumed run goes on from."""
    return TensorBoard(folder, after) if name == "tensorboard" else NoTracker()
