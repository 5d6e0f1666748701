"""A study stage by stage: what a stage starts is decided and written down first, then run.

A study without tuning has one stage. With it, trials come first, as often as grids are extended; the runs that decide
come last (`gptlab.planning.tuning`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gptlab.planning import tuning
from gptlab.planning.plan import Plan, PlannedRun
from gptlab.planning.tuning import at_work
from gptlab.running.decisions import Decision, decide, refuse, survey
from gptlab.running.kernels import refuse_damaged, settled
from gptlab.running.launch import look_again, run_jobs
from gptlab.running.queue import Watcher, open_study


@dataclass(frozen=True)
class Stage:
    """The plan as it was written, in its folder, and what becomes of each run that it starts."""

    plan: Plan
    folder: Path
    decisions: list[Decision]

    @property
    def runs(self) -> tuple[PlannedRun, ...]:
        """Those that this stage starts, or has."""
        return at_work(self.plan).runs

    @property
    def tries(self) -> bool:
        """Whether its runs are trials, which choose and do not decide."""
        return self.plan.tuning is not None and not self.plan.tuning.chosen


def reached(plan: Plan) -> Plan:
    """The plan at the stage that its finished trials have brought it to; one that is to be run again has not ended."""
    return tuning.reached(plan, _starts)


def following(plan: Plan) -> Plan | None:
    """The plan with what comes when its trials have ended; None where it is at its end, or they have not."""
    return tuning.following(plan, _starts)


def _starts(run: PlannedRun, folder: Path) -> bool:
    return decide(run, folder).action != "skip"


def begun(plan: Plan, command: Sequence[str]) -> Stage:
    """Decide, refuse what cannot go on, and write the plan. ConfigError before anything is written."""
    work, folder = at_work(plan), plan.output_dir / plan.study
    decisions = survey(work, folder)
    refuse(work.runs, decisions)
    refuse_damaged(work, folder, decisions)
    folder, plan = open_study(plan, command)
    return Stage(plan, folder, decisions)


def finished(stage: Stage, say: Callable[[str], None], watcher: Watcher | None = None) -> list[str]:
    """Run what has to be run, and return the state of every run of the stage. KeyboardInterrupt passes through."""
    work = settled(at_work(stage.plan), stage.folder, stage.decisions, say)
    return look_again(work, stage.folder, run_jobs(work, stage.folder, watcher, stage.decisions), say)
