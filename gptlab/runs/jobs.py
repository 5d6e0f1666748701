"""Run a plan, one run after the other, in this process.

A loop of our own, not Hydra's launcher: the launcher composes every job a second time without knowing the labels,
folders and baselines that the plan has settled, reports a failure only after the last job, and gives up a sweep for a
folder it cannot make. Workers belong behind `run_jobs` when they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from gptlab.errors import ConfigError
from gptlab.runs.files import write_json
from gptlab.runs.plan import Plan, PlannedRun


class Watcher(Protocol):
    """Is told of each run as it starts and as it ends. `number` counts from 1."""

    def started(self, number: int, run: PlannedRun) -> None: ...

    def ended(self, number: int, run: PlannedRun, result: dict[str, Any]) -> None: ...


def open_study(plan: Plan, command: Sequence[str] = ()) -> Path:
    """Make the study's folder and write plan.json into it. ConfigError when nothing can be written there."""
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
    folder = plan.output_dir / plan.study / stamp
    try:
        folder.mkdir(parents=True)
        write_json(folder / "plan.json", plan.to_json(command))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"output_dir={plan.output_dir}: cannot write into {folder.parent} ({reason}).") from error
    return folder


def run_jobs(plan: Plan, study: Path, watcher: Watcher | None = None) -> list[str]:
    """Execute all runs of the plan in their order; return their states. A failed run does not stop the next ones.

    KeyboardInterrupt passes through, after the run that it hit has been recorded as interrupted.
    """
    states = []
    for number, run in enumerate(plan.runs, start=1):
        if watcher:
            watcher.started(number, run)
        result = _execute(run, study / run.folder)
        states.append(str(result["state"]))
        if watcher:
            watcher.ended(number, run, result)
    return states


def _execute(run: PlannedRun, folder: Path) -> dict[str, Any]:
    from gptlab.runs.execute import execute

    try:
        return execute(run.config, folder, overrides=list(run.overrides))
    except OSError as error:  # a full disk, a folder taken away: the run is lost, not the sweep
        return {"state": "failed", "error": f"{type(error).__name__}: {error}", "metrics": {}, "seconds": 0.0}
