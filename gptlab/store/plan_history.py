"""A study's plans, the latest and the earlier ones: which runs its tables cover, and what was added after looking.

Each command writes its plan to plan.json and keeps it under plans/. A table covers every run in the folder whose
variant is in the latest plan, whichever command asked for its seed; runs of other variants are left out, by name.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gptlab.store.damage import DamagedError, load_object
from gptlab.store.names import PLAN, PLANS
from gptlab.store.study_plan import PlanEntry, StoredPlan, load_plan, parse_plan

Variants = Mapping[str, str]  # id of a run -> what its variant is known by


@dataclass(frozen=True)
class Addition:
    """What a later command added to a study that had results already."""

    when: str
    command: tuple[str, ...]
    seeds: tuple[int, ...]
    variants: tuple[str, ...]  # labels that these seeds are new for
    results: int  # runs of these variants that had ended by then


def whole_plan(folder: Path) -> tuple[StoredPlan, str]:
    """The latest plan with the runs of earlier ones that belong to its variants, and in words what is left out.

    GptlabError when `folder` is no study.
    """
    plan = load_plan(folder)
    if plan.problem:
        return plan, ""
    documents = list(plan_documents(folder))
    if not documents:
        return plan, ""
    known = {run.id for run in plan.runs}
    try:
        variants = variants_of(load_object(folder / PLAN))
    except DamagedError:
        return plan, ""
    own = {variants[run.id]: run for run in reversed(plan.runs) if run.id in variants}
    labels = {run.id: run.label for run in plan.runs}
    bases = {run.label: labels.get(run.baseline_id or "", "") for run in plan.runs}
    added: list[PlanEntry] = []
    left: Counter[str] = Counter()
    for document in documents:
        try:
            earlier = parse_plan(document).runs
        except DamagedError:
            continue
        theirs = variants_of(document)
        for run in earlier:
            if run.id in known or not os.path.isdir(folder / run.folder):
                continue
            known.add(run.id)
            sibling = own.get(theirs.get(run.id, ""))
            if sibling is None:
                left[run.label] += 1
            else:
                added.append(replace(run, label=sibling.label, delta=sibling.delta))
    runs = (*plan.runs, *added)
    ids = {(run.label, run.seed): run.id for run in runs}
    extra = (replace(run, baseline_id=ids.get((bases[run.label], run.seed))) for run in added)
    words = ", ".join(f"{label} ({number} {'run' if number == 1 else 'runs'})" for label, number in left.items())
    return replace(plan, runs=(*plan.runs, *extra)), words


def plan_documents(folder: Path) -> Iterator[dict[str, Any]]:
    """The plans under plans/, oldest first. One that cannot be read is passed over; none where there is only one."""
    try:
        names = sorted(name for name in os.listdir(folder / PLANS) if name.endswith(".json"))
    except OSError:
        return
    for name in names if len(names) > 1 else ():
        try:
            yield load_object(folder / PLANS / name)
        except DamagedError:
            continue


def variants_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Id of each run of a plan -> its variant; by label, change and overrides where an older plan does not say it."""
    found = {}
    for run in document.get("runs") or ():
        if isinstance(run, dict) and isinstance(run.get("id"), str):
            given = run.get("overrides") or ()
            words = [text for text in given if isinstance(text, str) and not text.startswith("seed=")]
            found[run["id"]] = str(run.get("variant") or (run.get("label"), run.get("delta"), words))
    return found


def additions(folder: Path) -> tuple[Addition, ...]:
    """What was added to the study after it had results, as its latest plan records it."""
    try:
        recorded = load_object(folder / PLAN).get("additions")
    except DamagedError:
        return ()
    return tuple(_parsed(recorded if isinstance(recorded, list) else ()))


def _parsed(recorded: Iterable[Any]) -> Iterator[Addition]:
    for entry in recorded:
        try:
            yield Addition(
                when=str(entry["when"]),
                command=tuple(str(word) for word in entry["command"]),
                seeds=tuple(int(seed) for seed in entry["seeds"]),
                variants=tuple(str(label) for label in entry["variants"]),
                results=int(entry["results"]),
            )
        except (TypeError, KeyError, ValueError, OverflowError):
            continue
