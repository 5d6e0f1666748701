"""Runs on more than one machine: Slurm through submitit, or a Ray cluster. Each is an extra: `gptlab[submitit]`,
`gptlab[ray]`.

Directly on these libraries, not through Hydra's launcher plugins: those pull a release candidate of Hydra, compose
every job again, and lose what the plan has settled. A job executes `perform(run, study)` on a folder that all machines
see, so results come together by the same files, and a job that is lost costs its run only.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gptlab.config import Config
from gptlab.errors import ConfigError
from gptlab.planning.plan import PlannedRun
from gptlab.running.queue import Queue, perform, record_crash
from gptlab.running.stopping import Stopped, stoppable

LOGS = ".submitit"  # in the study's folder
_LOOK = {"slurm": 5.0}  # seconds between looks; a scheduler should not be asked all the time
_QUICK_LOOK = 0.1


def job(run: PlannedRun, study: Path, path: Sequence[str]) -> dict[str, Any]:
    """What one job of a cluster does: `perform`, with the user's own modules found, and SIGTERM as an end in order."""
    sys.path.extend(place for place in path if place not in sys.path)
    try:
        with stoppable():
            return perform(run, study)
    except Stopped as stopped:
        return {"state": "interrupted", "error": str(stopped), "metrics": {}, "seconds": 0.0}


def submitit_jobs(queue: Queue, config: Config) -> None:
    """One job per run, at most `workers` at a time. `launcher_options`: `cluster` (slurm, local) and submitit's own."""
    import submitit

    options = dict(config.launcher_options)
    cluster = str(options.pop("cluster", "") or ("slurm" if submitit.AutoExecutor.which() == "slurm" else "local"))
    try:
        executor = submitit.AutoExecutor(folder=queue.study / LOGS / "%j", cluster=cluster)
        executor.update_parameters(**{"name": "gptlab", "cpus_per_task": config.threads, **options})
    except (TypeError, ValueError, NameError, RuntimeError) as error:
        first = f"{error}".strip().partition("\n")[0]  # submitit adds all that it knows
        raise ConfigError(f"launcher_options: {first}", code="launcher-options", key="launcher_options") from error
    running: dict[Any, PlannedRun] = {}
    try:
        while True:
            while len(running) < config.workers and (run := queue.take()) is not None:
                running[executor.submit(job, run, queue.study, sys.path)] = run
                queue.started(run)
            if not running:
                return
            time.sleep(_LOOK.get(cluster, _QUICK_LOOK))
            for one in [one for one in running if one.done()]:
                queue.ended(running[one], _outcome(one, running[one], queue.study))
                del running[one]
    except KeyboardInterrupt:
        for one in running:
            one.cancel(check=False)
        raise


def _outcome(one: Any, run: PlannedRun, study: Path) -> dict[str, Any]:
    """What a job brought, or how it was lost."""
    try:
        result: dict[str, Any] = one.result()
        return result
    except Exception as error:  # whatever the library says of a job that brought nothing
        return record_crash(run, study, f"its job {one.job_id} was lost: {_first_line(error)}")


def ray_tasks(queue: Queue, config: Config) -> None:
    """One task per run, at most `workers` at a time. `launcher_options`: arguments of ray.init, and `task` for those of
    a task (num_cpus, num_gpus, resources)."""
    import ray

    options = dict(config.launcher_options)
    asked: Mapping[str, Any] = {"num_cpus": config.threads, "max_retries": 0, **options.pop("task", {})}
    started = not ray.is_initialized()
    try:
        if started:
            ray.init(**{"log_to_driver": False, "logging_level": "error", **options})
        task = ray.remote(job).options(**asked)
    except (TypeError, ValueError, ConnectionError, RuntimeError) as error:
        raise ConfigError(
            f"launcher_options: {_first_line(error)}", code="launcher-options-refused", key="launcher_options"
        ) from error
    running: dict[Any, PlannedRun] = {}
    try:
        while True:
            while len(running) < config.workers and (run := queue.take()) is not None:
                running[task.remote(run, queue.study, sys.path)] = run
                queue.started(run)
            if not running:
                return
            for one in ray.wait(list(running), num_returns=1)[0]:
                run = running.pop(one)
                try:
                    result = ray.get(one)
                except Exception as error:  # ray's many words for a worker that is gone
                    result = record_crash(run, queue.study, f"its task was lost: {_first_line(error)}")
                queue.ended(run, result)
    except KeyboardInterrupt:
        for one in running:
            ray.cancel(one)  # KeyboardInterrupt in the task, which records it
        ray.wait(list(running), num_returns=len(running), timeout=30) if running else None
        raise
    finally:
        if started:
            ray.shutdown()


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
