"""A study as tidy frames, read from the files of its runs and from nothing else.

    runs         one row per planned run: what it is, what became of it, its metrics and its text
    layers       one row per run, step, layer, part and metric; part `all` is a layer as a whole
    generations  one row per token of the text that a run generated last: `step` 0 is before training
    steps        one row per run, training step and metric

A damaged or missing file costs its own run: the row stays, with the state `damaged`, `crashed` or `planned` and the
file's name. Reading never writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlab.metrics import METRICS
from gptlab.store import run_tables
from gptlab.store.csv_text import csv_text
from gptlab.store.damage import DamagedError
from gptlab.store.files import write_text
from gptlab.store.names import short_id
from gptlab.store.plan_history import whole_plan
from gptlab.store.states import State, state_of
from gptlab.store.study_plan import PlanEntry, StoredPlan

if TYPE_CHECKING:
    import pandas as pd

RUN_COLUMNS = ("run", "label", "seed", "state", "outcome", "is_baseline", "baseline", "changed", "error", "folder")
TEXT_COLUMNS = ("prompt", "text", "new_text", "not_finite", "warnings", "notes")
LAYER_COLUMNS = ("run", "label", "seed", "step", "layer", "part", "metric", "value")
STEP_COLUMNS = ("run", "label", "seed", "step", "tokens", "flops", "seconds", "metric", "value")
GENERATION_COLUMNS = ("run", "label", "seed", "step", "position", "token_id", "token", "margin")
STEP_FLOATS = ("tokens", "flops", "seconds", "value")


@dataclass(frozen=True)
class Study:
    """What was planned and what came of it."""

    folder: Path
    plan: StoredPlan
    runs: pd.DataFrame
    layers: pd.DataFrame
    generations: pd.DataFrame
    steps: pd.DataFrame

    @property
    def has_baseline(self) -> bool:
        """Whether any run is compared with another one."""
        return bool((self.runs["baseline"].ne("") & ~self.runs["is_baseline"]).any())

    @property
    def trained(self) -> bool:
        """Whether any run was trained: what was measured at step 0 was measured before that."""
        return "final_loss" in self.runs and bool(self.runs["final_loss"].notna().any())

    @property
    def said_when(self) -> str:
        """When the generated texts were said, for their heading: empty where nothing was trained."""
        if not self.trained:
            return ""
        return "after training" if self.generations["step"].gt(0).any() else "before training"

    def depth(self, metric: str) -> pd.DataFrame:
        """Rows of `layers` for whole layers at the first measured step, from the input to the output."""
        rows = self.layers[(self.layers["metric"] == metric) & (self.layers["part"] == run_tables.WHOLE_LAYER)]
        rows = rows[rows["layer"].notna()]
        return rows[rows["step"] == rows["step"].min()].sort_values(["run", "layer"], kind="stable")


def load_study(folder: Path | str) -> Study:
    """Read the study in `folder`. GptlabError only when there is no study at all."""
    import pandas as pd

    folder = Path(folder)
    plan, _ = whole_plan(folder)
    rows: list[dict[str, Any]] = []
    layers: list[dict[str, Any]] = []
    generations: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    for run in _ordered(plan):
        row, tables = _read_run(folder, run)
        rows.append(row)
        key = {name: row[name] for name in ("run", "label", "seed")}
        for target, source in zip((layers, generations, steps), tables, strict=True):
            target.extend({**key, **entry} for entry in source)
    return Study(
        folder=folder,
        plan=plan,
        runs=_runs_frame(rows),
        layers=pd.DataFrame(layers, columns=list(LAYER_COLUMNS)).astype({"layer": "Int64", "value": "float64"}),
        generations=pd.DataFrame(generations, columns=list(GENERATION_COLUMNS)).astype({"margin": "float64"}),
        steps=pd.DataFrame(steps, columns=list(STEP_COLUMNS)).astype(dict.fromkeys(STEP_FLOATS, "float64")),
    )


def write_tables(study: Study) -> list[Path]:
    """Write runs.csv, layers.csv, generations.csv and, after training, steps.csv; return their paths.

    They are read back as they were, but for the apostrophe that guards some texts (`gptlab.store.csv_text`).
    """
    paths = []
    for name in ("runs", "layers", "generations", "steps"):
        frame: pd.DataFrame = getattr(study, name)
        if name == "steps" and frame.empty:
            continue
        known = frame.astype(object).where(frame.notna(), None)
        write_text(
            study.folder / f"{name}.csv",
            csv_text(list(map(str, frame.columns)), known.itertuples(index=False, name=None)),
        )
        paths.append(study.folder / f"{name}.csv")
    return paths


def describe_change(delta: Mapping[str, tuple[Any, Any]]) -> str:
    """What a variant changed, in one line: `activation: gelu_tanh -> relu; norm_placement: pre -> post`.

    That a module was loaded is no change where there is another one: it only brought the names.
    """
    shown = {key: pair for key, pair in delta.items() if key != "plugins"} or delta
    return "; ".join(
        f"{key.removeprefix('model.')}: {_plain(old)} -> {_plain(new)}" for key, (old, new) in shown.items()
    )


def _ordered(plan: StoredPlan) -> list[PlanEntry]:
    """Baseline first, then the labels as planned, and the seeds of a label together."""
    first_seen = {run.label: place for place, run in reversed(list(enumerate(plan.runs)))}
    return sorted(plan.runs, key=lambda run: (run.baseline_id != run.id, first_seen[run.label], run.seed))


def _read_run(folder: Path, run: PlanEntry) -> tuple[dict[str, Any], tuple[run_tables.Rows, ...]]:
    state = state_of(folder / run.folder)
    hashes = state.result.hashes
    layers: run_tables.Rows = ()
    steps: run_tables.Rows = ()
    generation = run_tables.Generation()
    try:
        layers = run_tables.read_layers(folder / run.folder, hashes)
        generation = run_tables.read_generation(folder / run.folder, hashes)
        steps = run_tables.read_steps(folder / run.folder, hashes)
    except DamagedError as damage:
        # A run that ended in an error keeps its own: that is the better explanation.
        name, error = (
            ("damaged", str(damage)) if state.name == "finished" else (state.name, state.reason or str(damage))
        )
        state = State(name, error, state.result)
    return _run_row(run, state, generation), (layers, generation.rows, steps)


def _run_row(run: PlanEntry, state: State, generation: run_tables.Generation) -> dict[str, Any]:
    result = state.result
    return {
        "run": short_id(run.id),
        "label": run.label,
        "seed": run.seed,
        "state": state.name,
        "outcome": result.outcome,
        "is_baseline": run.baseline_id == run.id,
        "baseline": short_id(run.baseline_id or ""),
        "changed": describe_change(run.delta),
        "error": state.reason,
        "folder": run.folder,
        **({"seconds": result.seconds} if result.seconds is not None else {}),
        **result.metrics,
        "prompt": generation.prompt,
        "text": generation.text,
        "new_text": generation.new_text,
        "not_finite": ", ".join(result.not_finite),
        "warnings": "\n".join(result.warnings),
        "notes": "\n".join(result.notes),
    }


def _runs_frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Metrics stand in the order of their declaration; counts stay whole numbers where a run lacks one."""
    import pandas as pd

    found = dict.fromkeys(key for row in rows for key in row if key not in RUN_COLUMNS + TEXT_COLUMNS)
    places = {name: place for place, name in enumerate(METRICS)}
    metrics = sorted(found, key=lambda name: ("/" in name, places.get(name, len(places))))
    frame = pd.DataFrame(rows, columns=[*RUN_COLUMNS, *metrics, *TEXT_COLUMNS])
    for name in metrics:
        values = [row.get(name) for row in rows]
        whole = all(value is None or isinstance(value, int) for value in values)
        frame[name] = pd.array(values, dtype="Int64") if whole else pd.Series(values, dtype="float64")
    return frame.astype({"seed": object, "is_baseline": bool})


def _plain(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
