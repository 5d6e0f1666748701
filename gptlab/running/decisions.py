"""What to do with each run of a plan, and why: the rules behind `the same command again runs only what is missing`.

planned                  run
interrupted, crashed     resume: go on from what is there
finished, diverged       skip; where code or data have changed since, it is called stale, and `rerun_on` runs it
failed, damaged          skip and report; `retry_failed=true` runs it
running                  skip: another process has it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gptlab.config import Config
from gptlab.errors import GptlabError
from gptlab.planning.plan import Plan, PlannedRun
from gptlab.store import code
from gptlab.store.states import (
    MANIFEST,
    OVER,
    DamagedError,
    State,
    altered,
    folder_of,
    load_object,
    run_folders,
    state_of,
)

Action = Literal["run", "resume", "skip"]
_QUICK = 2**22  # bytes: files up to this size are checked against their hashes before a run is skipped


@dataclass(frozen=True)
class Decision:
    """`state` is the run's state now, `reason` why the action follows, `stale` what has changed since it ran."""

    action: Action
    state: str
    reason: str
    stale: str = ""


def survey(plan: Plan, study: Path) -> list[Decision]:
    """One decision for each run of the plan, in its order. Reads only."""
    known = run_folders(study)
    return [decide(run, study / folder_of(study, run.id, run.folder, known)) for run in plan.runs]


def decide(run: PlannedRun, folder: Path, owned: bool = False) -> Decision:
    """What to do with one run. `owned`: this process holds the folder's lock, so nobody else is writing there."""
    config, state = run.config, state_of(folder)
    if state.name == "running" and owned:
        state = State("crashed", "") if (folder / MANIFEST).exists() else State("planned")
    problems = altered(folder, state.result, _QUICK) if state.name in OVER else []
    if problems:
        state = State("damaged", problems[0], state.result)
    if state.name in OVER:
        return _of_finished(run, folder, state)
    if state.name in ("failed", "damaged"):
        kept = " (what is there is kept beside it)" if state.name == "damaged" else ""
        if config.retry_failed:
            return Decision("run", state.name, f"{state.name}, and retry_failed=true{kept}")
        first = state.reason.splitlines()[0] if state.reason else ""
        return Decision("skip", state.name, f"{state.name}; retry_failed=true runs it again: {first}")
    if state.name == "running":
        return Decision("skip", state.name, f"running: {state.reason}")
    if state.name == "planned":
        return Decision("run", state.name, "planned")
    return Decision("resume", state.name, f"{state.name}{_from_where(folder) if config.train.budget else ''}")


def _from_where(folder: Path) -> str:
    """The step that a training goes on from, by the names of its checkpoints: only resuming looks into them."""
    steps = sorted(path.name.removeprefix("step_") for path in folder.glob("checkpoints/step_*"))
    return f", goes on from step {int(steps[-1])}" if steps else ", without a checkpoint: starts again"


def _of_finished(run: PlannedRun, folder: Path, state: State) -> Decision:
    changed = stale(run.config, folder, state.result)
    words = "; ".join(text for texts in changed.values() for text in texts)
    asked = [kind for kind in changed if run.config.rerun_on in (kind, "any")]
    if asked:
        return Decision("run", state.name, f"changed since: {words}; and rerun_on={run.config.rerun_on}", words)
    if words:
        kinds = " or ".join(f"rerun_on={kind}" for kind in changed)
        return Decision("skip", state.name, f"{state.name}, but stale: {words} changed since; {kinds} runs it", words)
    return Decision("skip", state.name, state.name)


def stale(config: Config, folder: Path, result: dict[str, Any]) -> dict[str, list[str]]:
    """`code` and `data` -> what has changed since the run was recorded, for those that have."""
    recorded = result.get("code")
    found = {
        "code": code.changes(recorded, config.plugins) if isinstance(recorded, dict) else [],
        "data": _data_changes(config, folder),
    }
    return {kind: words for kind, words in found.items() if words}


def _data_changes(config: Config, folder: Path) -> list[str]:
    """Only a file can change behind the config's back: the id has its name, not its content."""
    if config.data.source != "file":
        return []
    from gptlab.data.batches import load

    try:
        recorded = load_object(folder / MANIFEST).get("data_sha256")
        current = load(config.data, vocab_size=config.model.vocab_size, seed=config.seed).hash
    except (DamagedError, GptlabError):
        return []
    return [f"the text of {config.data.path}"] if recorded and recorded != current else []


def explain(runs: Sequence[PlannedRun], decisions: Sequence[Decision], most: int = 4) -> list[str]:
    """A line for each action and reason, with the runs that it holds for; nothing for what is simply run."""
    groups: dict[tuple[str, str], list[str]] = {}
    several = len({run.seed for run in runs}) > 1
    for run, decision in zip(runs, decisions, strict=True):
        if decision.state != "planned":
            name = f"{run.label} seed={run.seed}" if several else run.label
            groups.setdefault((decision.action, decision.reason), []).append(name)
    planned = sum(decision.state == "planned" for decision in decisions)
    if groups and planned:
        groups["run", "planned"] = [f"{planned} not started yet"]
    lines = []
    for (action, why), names in groups.items():
        shown = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
        lines.append(f"{action:6} {shown} ({why})")
    return lines
