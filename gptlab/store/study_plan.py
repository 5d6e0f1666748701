"""plan.json in types: what a study set out to do, rebuilt from the run folders where it is damaged.

No pandas here, so that listing stays fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gptlab.errors import GptlabError, wrong_value
from gptlab.store.csv_text import is_missing
from gptlab.store.damage import DamagedError, load_object, parsing
from gptlab.store.names import PLAN, RESULT, STAMP, seed_in
from gptlab.store.result import parse_result, whole
from gptlab.tuned import Protocol
from gptlab.twin import Twin, parsed


@dataclass(frozen=True)
class PlanEntry:
    """One row of plan.json."""

    id: str
    label: str
    seed: int
    folder: str
    baseline_id: str | None = None
    delta: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    arm: str = ""  # label of the variant that it is a trial or a control of
    value: float | None = None  # of what is tuned, in a trial


@dataclass(frozen=True)
class StoredTuning:
    """What was tuned before the runs of the plan. `values`: label of a variant -> what it tried, rising.

    `chosen`: label -> value, empty while trials are to come. `controls`: variants at the value of their baseline.
    """

    protocol: Protocol
    values: Mapping[str, tuple[float, ...]]
    trials: tuple[PlanEntry, ...]
    chosen: Mapping[str, float]
    controls: tuple[PlanEntry, ...]


@dataclass(frozen=True)
class StoredPlan:
    """What a study set out to do. `problem` is not empty when plan.json could not be used and the folders were."""

    study: str
    question: str
    command: tuple[str, ...]
    baseline: str
    primary_metric: str
    runs: tuple[PlanEntry, ...]
    problem: str = ""
    margin: str = ""  # a difference in the primary metric that does not matter; empty for none
    twins: Mapping[str, Twin] = field(default_factory=dict)  # label -> what was solved, of matched variants
    labels: Mapping[str, str] = field(default_factory=dict)  # label -> what tables and figures call it
    tuning: StoredTuning | None = None


def load_plan(folder: Path) -> StoredPlan:
    """The plan of the study in `folder`; rebuilt from the run folders where plan.json is damaged.

    GptlabError when `folder` holds neither.
    """
    try:
        return parse_plan(load_object(folder / PLAN))
    except DamagedError as damage:
        runs = tuple(_planned_from_folder(path) for path in _run_folders(folder))
        if not runs:
            raise GptlabError(
                f"{folder} is not a study: {damage}.", code="not-a-study", folder=folder, damage=str(damage)
            ) from None
        return StoredPlan(study_name(folder), "", (), "", "", runs, problem=str(damage))


def study_name(folder: Path) -> str:
    """The study's name as its folder has it; the folders of older studies are named after the time."""
    return folder.parent.name if STAMP.fullmatch(folder.name) else folder.resolve().name


def parse_plan(content: dict[str, Any]) -> StoredPlan:
    """plan.json in types. DamagedError where it is not as it should be."""
    if not (isinstance(content.get("runs"), list) and content["runs"]):  # every plan has one: emptied is damaged too
        raise DamagedError(f"{PLAN}: it lists no runs")
    with parsing(PLAN):
        runs = tuple(_parse_run(run) for run in content["runs"])
    command = content.get("command")
    return StoredPlan(
        study=str(content.get("study", "")),
        question=str(content.get("question", "")),
        command=tuple(str(word) for word in command) if isinstance(command, list) else (),
        baseline=str(content.get("baseline") or ""),
        primary_metric=str(content.get("primary_metric") or ""),
        runs=runs,
        margin=str(content.get("margin") or ""),
        twins=parsed(content.get("match")),
        labels=_parse_labels(content.get("labels")),
        tuning=_parse_tuning(content.get("tune")),
    )


def check_names(key: str, labels: Iterable[str], names: Mapping[str, str]) -> None:
    """ConfigError for a name that tables take for a missing value, and for two variants under one name.

    `key`: what gave the names; `{}` in it stands for the label.
    """
    for label, name in names.items():
        if not name or is_missing(name):
            why = "tables would take this name for a missing value. Choose another one."
            raise wrong_value(key.format(label), name, why, code="name-for-missing")
    taken: dict[str, str] = {}
    for label in labels:
        other = taken.setdefault(names.get(label, label), label)
        if other != label:
            why = f"{other} would have this name too. Two variants need two names."
            raise wrong_value(key.format(label), names.get(label, label), why, code="name-twice", other=other)


def _parse_tuning(recorded: Any) -> StoredTuning | None:
    """DamagedError for a record that is not as it should be: without it, nobody can tell what chose the values."""
    if not isinstance(recorded, dict):
        return None
    with parsing(PLAN):
        arms = recorded["arms"]
        return StoredTuning(
            protocol=Protocol(
                key=str(recorded["key"]),
                factor=float(recorded["factor"]),
                points=int(recorded["points"]),
                max_trials=int(recorded["max_trials"]),
                seeds=tuple(int(seed) for seed in recorded["seeds"]),
                metric=str(recorded["metric"]),
                lower=recorded["lower"] is True,
            ),
            values={str(arm): tuple(map(float, found["values"])) for arm, found in arms.items()},
            trials=tuple(map(_parse_run, recorded["trials"])),
            chosen={str(arm): float(v["chosen"]) for arm, v in arms.items() if v["chosen"] is not None},
            controls=tuple(map(_parse_run, recorded["controls"])),
        )


def _parse_labels(labels: Any) -> dict[str, str]:
    return {str(label): str(name) for label, name in labels.items()} if isinstance(labels, dict) else {}


def _parse_run(run: Any) -> PlanEntry:
    if not isinstance(run, dict):
        raise ValueError("a run's entry is no object")
    delta = {str(key): (old, new) for key, (old, new) in (run.get("delta") or {}).items()}
    baseline, seed, folder = run.get("baseline_id"), whole(run["seed"]), run["folder"]
    if seed is None:
        raise ValueError(f"seed {str(run['seed'])[:40]!r} is no whole number")
    if not isinstance(folder, str) or folder in ("", ".", "..") or set("/\\\0") & set(folder):
        raise ValueError(f"folder {str(folder)[:80]!r} is not a name")
    overrides = tuple(str(text) for text in run.get("overrides") or ())
    baseline = baseline and str(baseline)
    arm, value = str(run.get("arm") or ""), run.get("value")
    value = float(value) if isinstance(value, int | float) else None
    return PlanEntry(str(run["id"]), str(run["label"]), seed, folder, baseline, delta, overrides, arm, value)


def _run_folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if (path / RESULT).is_file())
    except OSError:
        return []


def _planned_from_folder(path: Path) -> PlanEntry:
    return entry_of(path, PlanEntry("", path.name, seed_in(path.name) or 0, path.name))


def entry_of(folder: Path, otherwise: PlanEntry) -> PlanEntry:
    """The entry that a run has of itself, by its result.json alone; `otherwise` where that cannot tell."""
    try:
        result = parse_result(load_object(folder / RESULT))
    except DamagedError:
        return otherwise
    if not result.id or result.seed is None:
        return otherwise
    return PlanEntry(result.id, result.label or folder.name, result.seed, folder.name)
