"""What to do with each run of a plan, and why: the rules behind `the same command again runs only what is missing`.

planned                  run
interrupted, crashed     resume: go on from what is there; refuse where code or data have changed since, until
                         `on_changed` says whether to restart or to go on all the same
finished, diverged       skip; where code or data have changed since, it is called stale, and `rerun_on` runs it
failed, damaged          skip and report; `retry_failed=true` runs it
running                  skip: another process has it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gptlab.config import Config
from gptlab.errors import ConfigError
from gptlab.planning.plan import Plan, PlannedRun
from gptlab.running.current_data import current_hash
from gptlab.store import dependencies
from gptlab.store.damage import DamagedError
from gptlab.store.manifest import Manifest, read_manifest
from gptlab.store.names import CHECKPOINTS, MANIFEST
from gptlab.store.states import OVER, State, altered, folder_of, run_folders, state_of

Action = Literal["run", "resume", "skip", "refuse"]
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
        return _of_finished(run.config, folder, state)
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
    return _of_broken_off(config, folder, state)


def refuse(runs: Sequence[PlannedRun], decisions: Sequence[Decision]) -> None:
    """ConfigError, before anything is started, for runs that would go on as something else than they began."""
    refused = [(run, decision) for run, decision in zip(runs, decisions, strict=True) if decision.action == "refuse"]
    if refused:
        run, decision = refused[0]
        more = f" So it is with {len(refused) - 1} more." if len(refused) > 1 else ""
        raise ConfigError(
            f"on_changed: {run.label} seed={run.seed}: {decision.reason}.{more}",
            code="changed-runs",
            label=run.label,
            seed=run.seed,
            reason=decision.reason,
            more=more,
        )


def _of_broken_off(config: Config, folder: Path, state: State) -> Decision:
    steps = sorted(path.name.removeprefix("step_") for path in folder.glob(f"{CHECKPOINTS}/step_*"))
    if not steps or config.train.budget is None:  # nothing is there that could be mixed with what comes
        how = ", without a checkpoint: starts again" if config.train.budget else ""
        return Decision("resume", state.name, f"{state.name}{how}")
    where = f"{state.name}, goes on from step {int(steps[-1])}"  # by its name: only resuming looks into it
    words = "; ".join(text for texts in _since_it_began(config, folder).values() for text in texts)
    if not words:
        return Decision("resume", state.name, where)
    if config.on_changed == "restart":
        return Decision("run", state.name, f"{state.name}, and {words} changed since: on_changed=restart", words)
    if config.on_changed == "resume":
        return Decision("resume", state.name, f"{where}, though {words} changed since: on_changed=resume", words)
    return Decision(
        "refuse", state.name,
        f"{state.name} at step {int(steps[-1])}, and {words} changed since, so that it would be a mix of two runs; "
        "on_changed=restart begins it again, on_changed=resume goes on all the same", words,
    )  # fmt: skip


def _of_finished(config: Config, folder: Path, state: State) -> Decision:
    result = state.result
    data = result.data.sha256 or _manifest(folder).data  # older results have it in the manifest alone
    changed = stale(config, result.code, data)
    words = "; ".join(text for texts in changed.values() for text in texts)
    asked = [kind for kind in changed if config.rerun_on in (kind, "any")]
    if asked:
        return Decision("run", state.name, f"changed since: {words}; and rerun_on={config.rerun_on}", words)
    if words:
        kinds = " or ".join(f"rerun_on={kind}" for kind in changed)
        return Decision("skip", state.name, f"{state.name}, but stale: {words} changed since; {kinds} runs it", words)
    return Decision("skip", state.name, state.name)


def stale(config: Config, code: Mapping[str, str], data: str) -> dict[str, list[str]]:
    """`code` and `data` -> what has changed since these were recorded, for those that have."""
    current = current_hash(config) if data else ""
    named = f"the text of {config.data.path}" if config.data.path else f"the data (data.source={config.data.source})"
    found = {
        "code": dependencies.code_changes(code, config.plugins),
        "data": [named] if current and current != data else [],
    }
    return {kind: words for kind, words in found.items() if words}


def _since_it_began(config: Config, folder: Path) -> dict[str, list[str]]:
    """As `stale`, for the latest stretch of a run that is not over."""
    manifest = _manifest(folder)
    code: Any = manifest.stretches[-1].get("code") if manifest.stretches else manifest.document.get("code")
    return stale(config, code if isinstance(code, dict) else {}, manifest.data)


def _manifest(folder: Path) -> Manifest:
    try:
        return read_manifest(folder)
    except DamagedError:
        return Manifest()


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
