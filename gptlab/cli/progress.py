"""One line per run on stderr while a study runs, in a log too; on a terminal also one for what is running."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any

from gptlab.cli.output import tell
from gptlab.planning.plan import Plan, PlannedRun
from gptlab.texts import clock, harmless, printable
from gptlab.training.progress import Tick

_CLEAR = "\r\x1b[2K"
_LOG_EVERY = 60.0  # seconds between lines of one training in a log


class Progress:
    """Follows `run_jobs`: `[ 3/12] post_ln  163,009,536 parameters  loss 11.28  4.1 s  about 0:37 left`.

    Below the lines of the runs that have ended stands one for those that are running, however many there are. What is
    left is told from the time that the runs of this command took so far, side by side where they go side by side. In a
    log a training says where it stands once a minute. `todo`: how many runs are going to be started.
    """

    def __init__(self, plan: Plan, todo: int) -> None:
        self._total, self._todo, self._ended = len(plan.runs), todo, 0
        self._began = self._logged = time.monotonic()
        self._seeds = len({run.seed for run in plan.runs}) > 1
        self._width = max(len(self._name(run)) for run in plan.runs)
        self._shown = sys.stderr.isatty()
        self._running: dict[int, PlannedRun] = {}

    def started(self, number: int, run: PlannedRun) -> None:
        self._running[number] = run
        self._show_running()

    def ticked(self, tick: Tick) -> None:
        """The training that goes on in this process tells how far it is."""
        if len(self._running) == 1:
            ((number, run),) = self._running.items()
            line = f"{self._head(number, run)}  {tick}"
            self._write(line, end="")
            if not self._shown and time.monotonic() - self._logged > _LOG_EVERY:
                self._log(line)

    def ended(self, number: int, run: PlannedRun, result: dict[str, Any]) -> None:
        self._running.pop(number, None)
        self._ended += 1
        line = f"{self._head(number, run)}  {_summary(result)}{self._left()}"
        self._write(line, end="\n")
        if not self._shown:
            self._log(line)
        if result.get("hopeless"):
            tell("nothing more is started, for it could not be saved either")
        self._show_running()

    def clear(self) -> None:
        """Take away the line of the runs that are not going to end."""
        self._running.clear()
        self._write("", end="")

    def _show_running(self) -> None:
        if len(self._running) == 1:
            ((number, run),) = self._running.items()
            self._write(f"{self._head(number, run)}  running ...", end="")
        elif self._running:
            self._write(f"running: {', '.join(map(self._name, self._running.values()))} ...", end="")

    def _left(self) -> str:
        waiting = self._todo - self._ended
        seconds = (time.monotonic() - self._began) / self._ended * waiting
        return f"  about {clock(seconds)} left" if waiting > 0 else ""

    def _log(self, line: str) -> None:
        self._logged = time.monotonic()
        tell(line)

    def _head(self, number: int, run: PlannedRun) -> str:
        return f"[{number:{len(str(self._total))}}/{self._total}] {self._name(run):{self._width}}"

    def _name(self, run: PlannedRun) -> str:
        label = printable(run.label)
        return f"{label} seed={run.seed}" if self._seeds else label

    def _write(self, text: str, end: str) -> None:
        if self._shown:
            room = shutil.get_terminal_size().columns - 1  # a wrapped line could not be taken back
            print(f"{_CLEAR}{harmless(text)[:room]}", end=end, file=sys.stderr, flush=True)


def _summary(result: dict[str, Any]) -> str:
    if result["state"] not in ("finished", "diverged"):
        return f"{result['state']}: {' '.join(str(result['error']).split())}"
    metrics = result["metrics"]
    parts = ["diverged"] if result["state"] == "diverged" else []
    if "parameters" in metrics:
        parts.append(f"{metrics['parameters']:>15,} parameters")
    if "final_loss" in metrics:
        parts.append(f"loss {metrics['initial_loss']:.4g} -> {metrics['final_loss']:.4g}")
    elif "loss" in metrics:
        parts.append(f"loss {metrics['loss']:.4g}")
    return "  ".join([*parts, f"{result['seconds']:.1f} s"])
