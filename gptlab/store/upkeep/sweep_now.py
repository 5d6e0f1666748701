"""Where a sweep stands just now, from its files alone: which runs have ended, which go on, and how far those are.

The writers need know nothing of it: a training's place is the last whole line of its history, its length what its
manifest says. Reading never writes, so any number of eyes may look, on any machine that sees the folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptlab.store.damage import UNREADABLE, DamagedError
from gptlab.store.json_text import parse_json
from gptlab.store.manifest import read_manifest
from gptlab.store.names import HISTORY
from gptlab.store.result import is_finite
from gptlab.store.states import State, state_of
from gptlab.store.study_plan import PlanEntry, load_plan

ENDED = ("finished", "diverged", "failed", "damaged")  # nothing more comes unless somebody asks for it
WAITING = ("planned", "crashed", "interrupted")  # the same command runs them, or goes on with them
LOSSES = ("validation_loss", "train_loss", "loss")  # what stands for the primary metric while a run goes on
_TAIL = 65536  # bytes of a history that are read: its last lines


@dataclass(frozen=True)
class RunNow:
    """One run. `value`: of the primary metric at its end, or its last loss; `share`: of its budget, 0 to 1; `seconds`:
    that it took, or its training so far. None: not known."""

    label: str
    seed: int
    state: str
    error: str = ""
    value: float | None = None
    share: float | None = None
    seconds: float | None = None

    @property
    def seconds_left(self) -> float | None:
        """Of a run that goes on, at the speed so far."""
        return self.seconds * (1 - self.share) / self.share if self.share and self.seconds is not None else None


@dataclass(frozen=True)
class Sweep:
    """All runs of the latest plan, in its order. `metric`: the primary one.

    `deciding`: runs that come after these, which are trials of a tuning: which ones, their results say.
    """

    study: str
    metric: str
    runs: tuple[RunNow, ...]
    deciding: int = 0

    def count(self, *states: str) -> int:
        """How many runs are in one of these states."""
        return sum(run.state in states for run in self.runs)

    @property
    def is_over(self) -> bool:
        """Whether every run has ended, and none comes after these."""
        return not self.deciding and all(run.state in ENDED for run in self.runs)

    @property
    def seconds_left(self) -> float | None:
        """What is left at the speed so far, as many side by side as now. None where nothing tells."""
        running = [run for run in self.runs if run.state == "running"]
        waiting = self.count(*WAITING)
        took = [run.seconds for run in self.runs if run.state == "finished" and run.seconds]
        took = took or [run.seconds + left for run in running if run.seconds and (left := run.seconds_left) is not None]
        if not running or not took:
            return None
        each = sum(took) / len(took)
        lefts = [run.seconds_left for run in running]
        return (sum(each / 2 if left is None else left for left in lefts) + waiting * each) / len(running)


def look(folder: Path) -> Sweep:
    """The sweep as it is now. GptlabError when `folder` is no study."""
    plan = load_plan(folder)
    tuning = plan.tuning
    trying = tuning is not None and not tuning.chosen
    planned = (*plan.runs, *(tuning.controls if tuning else ()))
    entries = tuning.trials if tuning and trying else planned
    runs = tuple(_run_now(folder / run.folder, run, plan.primary_metric) for run in entries)
    return Sweep(plan.study or folder.name, plan.primary_metric, runs, len(plan.runs) if trying else 0)


def _run_now(folder: Path, run: PlanEntry, metric: str) -> RunNow:
    state = state_of(folder)
    if state.name == "running":
        return _going_on(folder, run)
    return RunNow(run.label, run.seed, state.name, state.reason, _value(state, metric), None, state.result.seconds)


def _value(state: State, metric: str) -> float | None:
    found = state.result.metrics
    return next((found[name] for name in (metric, "final_loss", "loss") if name in found), None)


def _going_on(folder: Path, run: PlanEntry) -> RunNow:
    """The last line of its history, against the budget of its config."""
    line = last_line(folder / HISTORY)
    metrics = line.get("metrics")
    found: Mapping[str, Any] = metrics if isinstance(metrics, dict) else {}
    value = next((found[name] for name in LOSSES if is_finite(found.get(name))), None)
    seconds = line.get("seconds")
    return RunNow(
        run.label, run.seed, "running",
        value=value, share=_share(folder, line), seconds=float(seconds) if is_finite(seconds) else None,
    )  # fmt: skip


def _share(folder: Path, line: Mapping[str, Any]) -> float | None:
    try:
        train = read_manifest(folder).config.get("train")
    except DamagedError:
        return None
    if not isinstance(train, dict):
        return None
    unit = str(train.get("budget_unit"))
    budget, done = train.get("budget"), line.get({"steps": "step"}.get(unit, unit))
    return min(1.0, done / budget) if is_finite(budget) and is_finite(done) and budget > 0 else None


def last_line(path: Path) -> dict[str, Any]:
    """The last whole line of a history; empty where there is none yet."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return {}
    for text in reversed(lines):
        try:
            line = parse_json(text.decode("utf-8"))
        except UNREADABLE:
            continue
        if isinstance(line, dict):
            return line
    return {}
