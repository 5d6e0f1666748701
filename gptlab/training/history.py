"""metrics.jsonl: one JSON object per line, appended as training goes.

A kill can tear the last line, and lines after the last checkpoint will be written again: opening takes both away.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from gptlab.store.atomic import replacing
from gptlab.store.damage import UNREADABLE
from gptlab.store.json_text import json_text, parse_json
from gptlab.store.names import HISTORY
from gptlab.training.budget import Spent


class History:
    """The open file. `after` on opening: keep the lines up to this step; None: start anew."""

    def __init__(self, folder: Path, after: int | None = None) -> None:
        path = folder / HISTORY
        kept = [] if after is None else [line for line, step in _lines(path) if step <= after]
        with replacing(path) as file:
            file.write("".join(f"{line}\n" for line in kept).encode())
        self._file = path.open("a", encoding="utf-8")

    def append(self, spent: Spent, metrics: dict[str, float | None]) -> None:
        """One line, handed to the system at once: a reader sees it, and a kill of this process leaves it."""
        line = {
            "step": spent.step, "tokens": spent.tokens,
            "flops": None if math.isnan(spent.flops) else spent.flops,  # they could not be counted
            "seconds": round(spent.seconds, 6),
            "metrics": {name: value for name, value in metrics.items() if value is not None},
        }  # fmt: skip
        self._file.write(json_text(line) + "\n")
        self._file.flush()

    def sync(self) -> None:
        """Put all lines on disk, before a checkpoint says that they are there."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read(folder: Path) -> list[dict[str, Any]]:
    """All whole lines, in order; none where there is no file."""
    return [parse_json(line) for line, _ in _lines(folder / HISTORY)]


def _lines(path: Path) -> list[tuple[str, int]]:
    """(line, step) up to the first line that is torn."""
    found = []
    if not path.exists():
        return []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]:  # a whole line ends with a newline
        try:
            found.append((line, int(parse_json(line)["step"])))
        except UNREADABLE:
            break
    return found
