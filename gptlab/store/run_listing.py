"""Every run on disk as a row: one small JSON file is read for each, so that ten thousand take under a second."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from gptlab.config import flatten
from gptlab.errors import GptlabError
from gptlab.store import dependencies
from gptlab.store.config_file import read_config
from gptlab.store.damage import DamagedError
from gptlab.store.data_files import Look
from gptlab.store.find_runs import is_run
from gptlab.store.manifest import read_manifest
from gptlab.store.names import PLAN, RUN_NAME, STAMP, seed_in
from gptlab.store.states import OVER, State, state_of
from gptlab.store.study_plan import load_plan, study_name
from gptlab.store.upkeep.marks import NONE, Marks, seen_marks

_DEPTH = 2  # <output_dir>/<study>, and <output_dir>/<study>/<time> of older ones
_FIELDS = ("study", "when", "label", "seed", "state", "outcome", "stale", "error", "seconds", "id", "role", "folder")
_MARKS = ("tags", "notes", "archived")
DEFAULT_COLUMNS = (
    "study",
    "when",
    "label",
    "seed",
    "state",
    "stale",
    "parameters",
    "loss",
    "seconds",
    "error",
    "folder",
)


@dataclass(frozen=True)
class RunRow:
    """One run, or one damaged study that hides its runs (no label then).

    `when` is the start of the study's latest command, `outcome` what became of a training, `stale` what has changed
    since a finished run was made, `marks` what people wrote beside it. `role`: `tuning` or `control` for a run that is
    in no mean of the study's tables.
    """

    study: str
    when: str
    label: str
    seed: int | None
    state: str
    error: str
    parameters: int | float | None
    loss: int | float | None
    seconds: float | None
    folder: Path
    id: str = ""
    outcome: str = ""
    role: str = ""
    stale: str = ""
    metrics: Mapping[str, int | float] = field(default_factory=dict)
    marks: Marks = NONE
    _config: list[dict[str, Any]] = field(default_factory=list, repr=False, compare=False)

    def value(self, key: str) -> Any:
        """A column, a metric, or a dotted key of the config; None when the run has none of these."""
        if key == "id":
            return f"r{self.id}" if self.id else ""
        if key in _FIELDS:
            found = getattr(self, key)
            return str(found) if isinstance(found, Path) else found
        if key in _MARKS:
            return self._mark(key)
        return self.metrics[key] if key in self.metrics else self._settings().get(key)

    def known(self) -> list[str]:
        """All keys that `value` knows something for."""
        return [*_FIELDS, *_MARKS, *self.metrics, *self._settings()]

    def _mark(self, key: str) -> Any:
        """Tags as a list, notes as one text with a line for each, and whether the run is archived."""
        if key == "tags":
            return list(self.marks.tags)
        return "\n".join(note.text for note in self.marks.notes) if key == "notes" else bool(self.marks.archived)

    def _settings(self) -> dict[str, Any]:
        """The config, read when it is first asked for: from the manifest, which is JSON and so quick."""
        if not self._config:
            plain: Mapping[str, Any] = {}
            if self.label:
                with suppress(DamagedError):
                    plain = read_manifest(self.folder).config
                if not plain:
                    with suppress(DamagedError):
                        plain = read_config(self.folder)
            self._config.append(flatten(dict(plain)))
        return self._config[0]


def list_runs(output_dir: Path | str) -> list[RunRow]:
    """All runs under `output_dir` (or in one study's folder, or that one run), newest study first.

    Runs of the latest plan stand first, in its order, then those of earlier plans. Reading only. A damaged file costs
    its run, a damaged plan is rebuilt from the run folders.
    """
    if is_run(Path(output_dir)):
        run = Path(output_dir).absolute()
        return [row for row in _study_rows(run.parent, _when(run.parent), Look()) if row.folder == run]
    found = sorted(((_when(folder), folder) for folder in study_folders(Path(output_dir))), reverse=True)
    look = Look()
    with no_collection():
        return [row for when, folder in found for row in _study_rows(folder, when, look)]


@contextmanager
def no_collection() -> Iterator[None]:
    """Garbage is not looked for meanwhile: rows have no cycles, and walking all of them each time is not linear."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def study_folders(folder: Path, depth: int = 0) -> Iterator[Path]:
    """The folders of the studies at and below `folder`."""
    if os.path.lexists(folder / PLAN) or STAMP.fullmatch(folder.name):
        yield folder
    elif depth < _DEPTH:
        try:
            with os.scandir(folder) as entries:
                inside = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
        except OSError:
            return
        if any(RUN_NAME.fullmatch(name) for name in inside):
            yield folder  # its plan is lost
            return
        for name in inside:
            yield from study_folders(folder / name, depth + 1)


def _when(folder: Path) -> str:
    stamp = STAMP.fullmatch(folder.name)
    if stamp:
        return f"{stamp[1]} {stamp[2]}:{stamp[3]}:{stamp[4]}"
    for path in (folder / PLAN, folder):
        try:
            return datetime.fromtimestamp(path.stat().st_mtime).astimezone().isoformat(" ", "seconds")
        except OSError:
            continue
    return ""


def _study_rows(folder: Path, when: str, look: Look) -> Iterator[RunRow]:
    planned: set[str] = set()
    try:
        plan = load_plan(folder)
    except GptlabError as error:
        if os.path.lexists(folder / PLAN):
            yield RunRow(study_name(folder), when, "", None, "damaged", str(error), None, None, None, folder)
    else:
        tuning = plan.tuning
        groups = [("", plan.runs), *([("control", tuning.controls), ("tuning", tuning.trials)] if tuning else [])]
        for role, run in ((role, run) for role, runs in groups for run in runs):
            planned.add(run.folder)
            seed = run.seed if run.id else seed_in(run.folder)
            state = state_of(os.path.join(folder, run.folder))
            yield _row(plan.study, when, folder / run.folder, run.label, seed, run.id, state, look, role)
    for name in _other_runs(folder, planned):
        state = state_of(os.path.join(folder, name))
        result = state.result
        seed = seed_in(name) if result.seed is None else result.seed
        yield _row(study_name(folder), when, folder / name, result.label or name, seed, result.id, state, look)


def _other_runs(folder: Path, planned: set[str]) -> list[str]:
    """Runs of earlier plans: folders that look like runs, and hold one."""
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if e.name not in planned and RUN_NAME.fullmatch(e.name)]
    except OSError:
        return []
    return [name for name in sorted(names) if os.path.isdir(os.path.join(folder, name))]


def _row(
    study: str, when: str, folder: Path, label: str, seed: int | None, run_id: str, state: State, look: Look,
    role: str = "",
) -> RunRow:  # fmt: skip
    result = state.result
    metrics = result.metrics
    return RunRow(
        study=study,
        when=when,
        label=label,
        seed=seed,
        state=state.name,
        error=state.reason,
        parameters=metrics.get("parameters"),
        loss=metrics.get("loss"),
        seconds=result.seconds,
        folder=folder,
        id=run_id,
        outcome=result.outcome,
        role=role,
        stale=", ".join(dependencies.changes(result, look)) if state.name in OVER else "",
        metrics=metrics,
        marks=seen_marks(folder),
    )
