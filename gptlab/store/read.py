"""Reading a study folder's JSON: the plan and the state of each run. No pandas here, so that listing stays fast.

Reading never writes, and one bad file costs one run: whatever is wrong becomes a state and a sentence.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from gptlab.errors import GptlabError
from gptlab.store.states import RESULT, RUN_NAME, DamagedError, load_object, reason, state_of

__all__ = ["PLAN", "STAMP", "DamagedError", "Outcome", "Plan", "PlannedRun", "load_outcome", "load_plan", "reason"]

PLAN = "plan.json"
STAMP = re.compile(r"(\d{4}-\d{2}-\d{2})_(\d{2})-(\d{2})-(\d{2})-\d{6}")


@dataclass(frozen=True)
class PlannedRun:
    """One row of plan.json."""

    id: str
    label: str
    seed: int
    folder: str
    baseline_id: str | None = None
    delta: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What a study set out to do. `problem` is not empty when plan.json could not be used and the folders were."""

    study: str
    question: str
    command: tuple[str, ...]
    baseline: str
    primary_metric: str
    runs: tuple[PlannedRun, ...]
    problem: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of one run.

    `metrics` holds numbers, `not_finite` names those that were NaN or infinite, `hashes` has the SHA-256 of the files
    that the run wrote.
    """

    state: str
    error: str = ""
    metrics: dict[str, int | float] = field(default_factory=dict)
    not_finite: tuple[str, ...] = ()
    seconds: float | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    hashes: dict[str, str] = field(default_factory=dict)
    outcome: str = ""  # of training: ok, diverged, collapsed, leaked; empty without training
    history_bytes: int | None = None  # of metrics.jsonl, as the run wrote it: `state` rests on it
    code: dict[str, str] = field(default_factory=dict)  # what made it, for `gptlab.store.code.changes`


def load_plan(folder: Path) -> Plan:
    """The plan of the study in `folder`; rebuilt from the run folders where plan.json is damaged.

    GptlabError when `folder` holds neither.
    """
    try:
        return parse_plan(load_object(folder / PLAN))
    except DamagedError as damage:
        runs = tuple(_planned_from_folder(path) for path in _run_folders(folder))
        if not runs:
            raise GptlabError(f"{folder} is not a study: {damage}.") from None
        return Plan(study_name(folder), "", (), "", "", runs, problem=str(damage))


def study_name(folder: Path) -> str:
    """The study's name as its folder has it; the folders of older studies are named after the time."""
    return folder.parent.name if STAMP.fullmatch(folder.name) else folder.resolve().name


def parse_plan(content: dict[str, Any]) -> Plan:
    """plan.json in types. DamagedError where it is not as it should be."""
    if not isinstance(content.get("runs"), list):
        raise DamagedError(f"{PLAN}: it lists no runs")
    try:
        runs = tuple(_parse_run(run) for run in content["runs"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedError(f"{PLAN}: a run's entry is not as it should be ({type(error).__name__}: {error})") from error
    command = content.get("command")
    return Plan(
        study=str(content.get("study", "")),
        question=str(content.get("question", "")),
        command=tuple(str(word) for word in command) if isinstance(command, list) else (),
        baseline=str(content.get("baseline") or ""),
        primary_metric=str(content.get("primary_metric") or ""),
        runs=runs,
    )


def _parse_run(run: dict[str, Any]) -> PlannedRun:
    delta = {str(key): (old, new) for key, (old, new) in (run.get("delta") or {}).items()}
    baseline = run.get("baseline_id")
    folder = str(run["folder"])
    if folder in ("", ".", "..") or "/" in folder or "\\" in folder or "\0" in folder:
        raise ValueError(f"folder {folder!r} is not a name")
    overrides = tuple(str(text) for text in run.get("overrides") or ())
    baseline = baseline and str(baseline)
    return PlannedRun(str(run["id"]), str(run["label"]), int(run["seed"]), folder, baseline, delta, overrides)


def _run_folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if (path / RESULT).is_file())
    except OSError:
        return []


def _planned_from_folder(path: Path) -> PlannedRun:
    """A plan row from result.json alone. Where that is damaged too, the folder's name is all there is."""
    try:
        result = load_object(path / RESULT)
        return PlannedRun(str(result["id"]), str(result["label"]), int(result["seed"]), path.name)
    except (DamagedError, KeyError, TypeError, ValueError):
        return PlannedRun("", path.name, seed_in(path.name) or 0, path.name)


def seed_in(name: str) -> int | None:
    """The seed that the name of a run folder tells; None for another name."""
    match = RUN_NAME.fullmatch(name)
    return int(match["seed"]) if match else None


def load_outcome(run_folder: Path | str) -> Outcome:
    """What result.json says of a run, or what its absence means. Never raises."""
    state = state_of(run_folder)
    result = state.result
    if not result:
        return Outcome(state.name, state.reason)
    metrics = result.get("metrics") or {}
    numbers = {str(name): value for name, value in metrics.items() if _is_finite(value)}
    seconds = result.get("seconds")
    return Outcome(
        state=state.name,
        error=state.reason,
        metrics=numbers,
        not_finite=tuple(str(name) for name in metrics if name not in numbers),  # NaN is written as null
        seconds=float(seconds) if _is_finite(seconds) else None,
        notes=_sentences(result.get("notes")),
        warnings=_sentences(result.get("warnings")),
        hashes=hashes if isinstance(hashes := result.get("artifacts"), dict) else {},
        outcome=str(result.get("outcome") or ""),
        history_bytes=size if isinstance(size := result.get("history_bytes"), int) else None,
        code=made_by if isinstance(made_by := result.get("code"), dict) else {},
    )


def _is_finite(value: Any) -> TypeGuard[int | float]:
    if type(value) is float:
        return math.isfinite(value)
    # An integer beyond 64 bits fits no table, and no honest count gets there. A bool is no number.
    return type(value) is int and -(2**63) < value < 2**63


def _sentences(value: Any) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()
