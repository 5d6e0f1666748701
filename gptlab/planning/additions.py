"""What a command adds to a study that has results already: recorded in plan.json, for tables and the audit to say.

Seeds that are added because of what was seen are no planned seeds: whoever may go on until it looks good finds
something more often than in one of twenty studies. Growing is no fault, hiding it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gptlab.planning.plan import Plan
from gptlab.store.damage import DamagedError, load_object
from gptlab.store.names import PLAN
from gptlab.store.plan_history import plan_documents, variants_of
from gptlab.store.states import OVER, run_folders, state_of


def recorded_additions(plan: Plan, folder: Path, command: Sequence[str], now: str) -> list[dict[str, Any]]:
    """The additions that the study's plan has recorded so far, and that of `plan`, where it makes one.

    Added is a seed of a variant that was planned before, without it, and has a run that has ended.
    """
    try:
        latest = load_object(folder / PLAN)
    except DamagedError:
        return []
    earlier = latest.get("additions")
    found = list(earlier) if isinstance(earlier, list) else []
    seeds: dict[str, dict[int, str]] = {}  # variant -> seed -> id, over all plans before this one
    for document in (*plan_documents(folder), latest):
        variants = variants_of(document)
        for run in document.get("runs") or ():
            if isinstance(run, dict) and run.get("id") in variants and isinstance(run.get("seed"), int):
                seeds.setdefault(variants[run["id"]], {})[run["seed"]] = run["id"]
    own = variants_of(plan.to_json())
    new = [run for run in plan.runs if own[run.id] in seeds and run.seed not in seeds[own[run.id]]]
    if not new:
        return found
    ids = {id_ for run in new for id_ in seeds[own[run.id]].values()}
    ended = _ended(folder, ids)
    if ended:
        found.append(
            {
                "when": now,
                "command": list(command),
                "seeds": sorted({run.seed for run in new}),
                "variants": list(dict.fromkeys(run.label for run in new)),
                "results": ended,
            }
        )
    return found


def _ended(folder: Path, ids: set[str]) -> int:
    known = run_folders(folder)
    states = (state_of(folder / name) for id_ in ids for name in known.get(id_[:8], []))
    return sum(state.name in OVER and state.result.id in ids for state in states)
