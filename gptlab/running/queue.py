"""Run a plan: which runs are started, in which order, and what becomes of each.

A loop of our own, not Hydra's launcher: the launcher composes every job a second time without knowing the labels,
folders and baselines that the plan has settled, reports a failure only after the last job, and gives up a sweep for a
folder it cannot make. What starts the runs (this process, several workers, a cluster) is `launch`.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from gptlab.errors import wrong_value
from gptlab.planning.additions import recorded_additions
from gptlab.planning.plan import Plan, PlannedRun
from gptlab.running.decisions import Decision, decide
from gptlab.store import files, locks
from gptlab.store.atomic import StorageError
from gptlab.store.names import CRASH, MARKS, PLAN, PLANS, now, stamp
from gptlab.store.states import folder_of, run_folders, state_of

_HOPELESS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # the next run could not be saved either
_UNWELL = ("failed", "diverged", "crashed", "damaged")


class Watcher(Protocol):
    """Is told of each run as it starts and as it ends. `number` counts from 1."""

    def started(self, number: int, run: PlannedRun) -> None: ...

    def ended(self, number: int, run: PlannedRun, result: dict[str, Any]) -> None: ...


def open_study(plan: Plan, command: Sequence[str] = ()) -> tuple[Path, Plan]:
    """The study's folder, with plan.json in it, and the plan with the folders that its runs have or will have.

    The folder stays the same, so that the same command finds its runs again. Every plan is kept under plans/, the
    latest is plan.json. ConfigError when nothing can be written there.
    """
    folder = plan.output_dir / plan.study
    known = run_folders(folder)

    def where(run: PlannedRun) -> str:
        return folder_of(folder, run.id, run.folder, known)

    plan = replace(
        plan,
        runs=tuple(replace(run, folder=where(run)) for run in plan.runs),
        tuning=plan.tuning.placed(where) if plan.tuning else None,
    )
    created = now()
    grew = recorded_additions(plan, folder, command, created)
    document = {**plan.to_json(command), "created": created, **({"additions": grew} if grew else {})}
    try:
        files.make_folder(folder / PLANS)
        files.write_json(folder / PLANS / f"{stamp()}.json", document)
        files.write_json(folder / PLAN, document, durable=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise wrong_value(
            "output_dir",
            plan.output_dir,
            f"cannot write into {folder} ({reason}).",
            code="output-dir-not-writable",
            folder=folder,
            reason=reason,
        ) from error
    return folder, plan


class Queue:
    """The runs still to be started, and what became of the others. A launcher takes from it and reports to it."""

    def __init__(self, plan: Plan, study: Path, decisions: Sequence[Decision], watcher: Watcher | None = None) -> None:
        self.study = study.absolute()
        self._runs = plan.runs
        self._numbers = {run.id: number for number, run in enumerate(plan.runs, start=1)}
        self._watcher = watcher
        self._states: dict[str, str] = {run.id: d.state for run, d in zip(plan.runs, decisions, strict=True)}
        # Seeds first, so that a study which is stopped is a smaller study. Crashed runs last: one that kills its
        # process each time should not keep the others from their turn.
        seeds = list(dict.fromkeys(run.seed for run in plan.runs)) if plan.runs[0].config.order == "seeds" else []
        todo = [
            (decision.state == "crashed", seeds.index(run.seed) if seeds else 0, number)
            for number, (run, decision) in enumerate(zip(plan.runs, decisions, strict=True))
            if decision.action in ("run", "resume")
        ]
        self._waiting = deque(number for *_, number in sorted(todo))

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> PlannedRun | None:
        """The next run to start, or None."""
        return self._runs[self._waiting.popleft()] if self._waiting else None

    def started(self, run: PlannedRun) -> None:
        if self._watcher:
            self._watcher.started(self._numbers[run.id], run)

    def ended(self, run: PlannedRun, result: dict[str, Any]) -> None:
        """Note what became of a run. Where going on makes no sense, or is not wanted, nothing more is handed out."""
        self._states[run.id] = str(result["state"])
        if self._watcher:
            self._watcher.ended(self._numbers[run.id], run, result)
        if result.get("hopeless") or (run.config.on_error == "stop" and result["state"] in _UNWELL):
            self._waiting.clear()

    def states(self) -> list[str]:
        """In the order of the plan."""
        return [self._states[run.id] for run in self._runs]


def perform(run: PlannedRun, study: Path) -> dict[str, Any]:
    """Execute one run, in whatever process this is, and return its result; nothing but KeyboardInterrupt is raised.

    The decision is made once more, when the run has been claimed: another process may have finished it by now.
    """
    from gptlab.running.execute import execute_claimed

    try:
        with locks.claim(study, lambda: study / folder_of(study, run.id, run.folder)) as folder:
            decision = decide(run, folder, owned=True)
            if decision.action == "skip":
                return {**recorded(folder), "state": decision.state}
            if decision.action == "refuse":
                return _lost(decision.state, decision.reason)
            if decision.state == "damaged":
                _set_aside(folder)
            resume = decision.action == "resume"
            changed = decision.stale if resume else ""
            return execute_claimed(run.config, folder, overrides=list(run.overrides), resume=resume, changed=changed)
    except locks.BusyError as busy:
        return _lost("running", str(busy))
    except OSError as error:  # a full disk, a folder taken away: the run is lost, not the sweep
        words = str(error) if isinstance(error, StorageError) else f"{type(error).__name__}: {error}"
        return {**_lost("crashed", words), "hopeless": error.errno in _HOPELESS or not study.is_dir()}


def record_crash(run: PlannedRun, study: Path, error: str) -> dict[str, Any]:
    """Note in its folder how a run's process ended, when it could not do so itself. Returns a result like `perform`."""
    try:
        with locks.claim(study, lambda: study / folder_of(study, run.id, run.folder)) as folder:
            state = decide(run, folder, owned=True).state
            if state not in ("crashed", "planned"):  # it had come to its end
                return recorded(folder)
            files.write_json(folder / CRASH, {"schema": 1, "error": error, "when": now()})
    except (locks.BusyError, OSError):
        pass  # somebody else has taken it up, or nothing can be written: the message below is all there is
    return _lost("crashed", error)


def recorded(folder: Path) -> dict[str, Any]:
    """What `perform` returned, or would have, for a run that has ended."""
    state = state_of(folder)
    result = state.result
    return {
        "state": state.name, "outcome": result.outcome or None, "error": state.reason, "metrics": dict(result.metrics),
        "seconds": result.seconds or 0.0, "notes": list(result.notes), "warnings": list(result.warnings),
    }  # fmt: skip


def _lost(state: str, error: str) -> dict[str, Any]:
    return {"state": state, "error": error, "metrics": {}, "seconds": 0.0}


def _set_aside(folder: Path) -> None:
    """Keep all that a damaged run left, in a folder beside; only the lock stays, and what people wrote."""
    aside = folder.with_name(f"{folder.name}.damaged-{stamp()}")
    files.make_folder(aside)
    for path in sorted(folder.iterdir()):
        if path.name not in (locks.LOCK, MARKS):
            files.move(path, aside / path.name)
