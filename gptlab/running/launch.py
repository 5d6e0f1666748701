"""What starts the runs: this process, a crew of workers, or a cluster. One function: take from the queue, report back.

A launcher hands `perform(run, study)` to some process for each run that the queue gives out. What comes back may be
lost, for the files in the run folder say the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from gptlab import streams
from gptlab.config import Config
from gptlab.planning.plan import Plan
from gptlab.running.decisions import Decision, survey
from gptlab.running.queue import Queue, Watcher, perform
from gptlab.store.locks import holder
from gptlab.store.states import state_of

_LOOK = 0.2  # seconds between looks at the runs of others


def run_jobs(
    plan: Plan, study: Path, watcher: Watcher | None = None, decisions: Sequence[Decision] | None = None
) -> list[str]:
    """Execute what has to be executed; return the state of every run of the plan. A failed run does not stop the
    others, unless on_error=stop.

    KeyboardInterrupt passes through, after the runs that it hit have been recorded as interrupted.
    """
    queue = Queue(plan, study, survey(plan, study) if decisions is None else decisions, watcher)
    launch(queue, plan.runs[0].config)
    return queue.states()


def look_again(plan: Plan, study: Path, states: Sequence[str], say: Callable[[str], None]) -> list[str]:
    """The states of all runs when no other process of this machine has one of them any more.

    The same command, given twice at once, shares the runs out: each of the two ends when all are done. For a process
    that cannot be seen from here nobody waits.
    """
    folders = [study / run.folder for run in plan.runs]
    theirs = [number for number, state in enumerate(states) if state == "running"]
    found, said = list(states), False
    while theirs:
        for number in theirs:
            found[number] = state_of(folders[number]).name
        theirs = [n for n in theirs if found[n] == "running" and (who := holder(folders[n])) and not who.elsewhere]
        if theirs:
            if not said:
                say(f"waiting for {len(theirs)} of the runs, which another process has; Ctrl-C does not hurt it")
            said = True
            time.sleep(_LOOK)
    return found


def launch(queue: Queue, config: Config) -> None:
    """Execute the queue as `config` says. KeyboardInterrupt passes through when what was running has been recorded."""
    if not len(queue):
        return
    if config.launcher == "submitit":
        from gptlab.running.clusters import submitit_jobs

        submitit_jobs(queue, config)
    elif config.launcher == "ray":
        from gptlab.running.clusters import ray_tasks

        ray_tasks(queue, config)
    elif config.workers > 1 and len(queue) > 1:
        from gptlab.running.workers import crew

        crew(queue, config.workers)
    else:
        inline(queue)


def inline(queue: Queue) -> None:
    """One run after the other, in this process. What one has drawn of the reference's weights, the next one takes."""
    with streams.keeping() if len(queue) > 1 else nullcontext():
        while (run := queue.take()) is not None:
            queue.started(run)
            queue.ended(run, perform(run, queue.study))
