"""A crew of worker processes, each of which executes one run at a time and outlives it.

A small supervisor instead of a process pool: when one process of a pool is killed, the pool gives up every job that it
still has. Here it costs the one run, and a new worker takes its place. Workers stay because loading torch takes longer
than a small run. Each run has `threads` threads in whatever process it is, so its numbers do not depend on the crew.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from gptlab.planning.plan import PlannedRun
from gptlab.running.queue import Queue, perform, record_crash
from gptlab.running.stopping import Stopped, stoppable

_START = """
import json, sys
sys.path[:], sys.argv[:] = json.loads(sys.argv[1])
from gptlab.running.workers import work
work({})
"""
_LOOK = 1.0  # seconds between looks at processes whose pipe stayed open though they died


@dataclass(eq=False)
class Worker:
    """One process, its end of the pipe, and the run that it has."""

    process: subprocess.Popen[bytes]
    pipe: Connection
    run: PlannedRun | None = None


def crew(queue: Queue, size: int) -> None:
    """Execute the queue with `size` workers. On KeyboardInterrupt they are told to stop, and what they had is recorded;
    a second one ends them at once."""
    workers: list[Worker] = []
    try:
        try:
            _work_off(queue, size, workers)
        except KeyboardInterrupt:
            _stop(queue, workers)
            raise
    finally:
        _dismiss(workers)


def _work_off(queue: Queue, size: int, workers: list[Worker]) -> None:
    while True:
        idle = [worker for worker in workers if worker.run is None]
        while len(workers) - len(idle) < size and (run := queue.take()) is not None:
            worker = idle.pop() if idle else _hire(workers)
            if not _hand_over(worker, run, queue):  # it died while it had nothing to do
                _bury(workers, worker)
                _hand_over(_hire(workers), run, queue)
            queue.started(run)
        if all(worker.run is None for worker in workers):
            return
        _collect(queue, workers, _LOOK)


def _hand_over(worker: Worker, run: PlannedRun, queue: Queue) -> bool:
    worker.run = run
    try:
        worker.pipe.send((run, queue.study))
        return worker.process.poll() is None
    except OSError:
        return False


def _collect(queue: Queue, workers: list[Worker], patience: float) -> None:
    """Wait for news of any worker, and pass it on."""
    ready = wait([worker.pipe for worker in workers if worker.run], patience)
    for worker in [w for w in workers if w.run]:
        if worker.pipe not in ready and worker.process.poll() is None:
            continue
        run, worker.run = worker.run, None
        assert run is not None
        try:
            if not worker.pipe.poll():
                raise EOFError
            result, stays = worker.pipe.recv()
            if not stays:
                _bury(workers, worker)
        except (EOFError, OSError):
            result = record_crash(run, queue.study, _obituary(_bury(workers, worker)))
        queue.ended(run, result)


def _hire(workers: list[Worker]) -> Worker:
    ours, theirs = Pipe()
    number = theirs.fileno()
    # Not multiprocessing's own start: it would import the caller's script a second time.
    command = [sys.executable, "-c", _START.format(number), json.dumps([sys.path, sys.argv])]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[number])
    theirs.close()
    workers.append(Worker(process, ours))
    return workers[-1]


def _stop(queue: Queue, workers: list[Worker]) -> None:
    for worker in workers:
        worker.process.terminate()
    while any(worker.run for worker in workers):
        _collect(queue, workers, _LOOK)


def _dismiss(workers: list[Worker]) -> None:
    """Let the idle go, and end those that are not."""
    for worker in workers:
        if worker.run:
            worker.process.kill()
        else:
            with suppress(OSError):
                worker.pipe.send(None)
        worker.pipe.close()
    for worker in workers:
        try:
            worker.process.wait(timeout=10)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            worker.process.kill()
            worker.process.wait()


def _bury(workers: list[Worker], worker: Worker) -> int:
    """Take a worker off the list whose pipe has closed, or is of no use; return its exit code."""
    workers.remove(worker)
    worker.pipe.close()
    try:
        return worker.process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        worker.process.kill()
        return worker.process.wait()


def _obituary(code: int) -> str:
    if code >= 0:
        return f"the process of this run ended by itself, with exit code {code}"
    name = signal.Signals(-code).name
    return f"the process of this run was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


def work(number: int) -> None:
    """A worker's life: runs come through the pipe, results go back. It ends with its supervisor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the supervisor decides
    pipe: Connection[Any, Any] = Connection(number)
    threading.Thread(target=_follow, args=[os.getppid()], daemon=True).start()
    with suppress(EOFError, OSError, Stopped), stoppable():
        while (task := pipe.recv()) is not None:
            run, study = task
            try:
                result = perform(run, study)
            except Stopped as stopped:
                result = {"state": "interrupted", "error": str(stopped), "metrics": {}, "seconds": 0.0}
                pipe.send((result, False))
                return
            pipe.send((result, True))


def _follow(parent: int) -> None:
    """End in order when the supervisor has died without a word: nobody would give out the next run."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.kill(os.getpid(), signal.SIGTERM)
