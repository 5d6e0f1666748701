"""`gptlab watch`: a sweep while it goes on, looked at from outside."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gptlab.cli.arguments import Parser, one_folder
from gptlab.cli.output import tell
from gptlab.errors import ConfigError

if TYPE_CHECKING:
    from gptlab.store.upkeep.sweep_now import Sweep

HELP = """\
usage: gptlab watch STUDY [--once]

Shows a sweep while it runs: what has ended with which loss, how far the others are, and about how long it will take.
It ends when all runs have, or when nothing has run for half a minute. On a terminal the view is drawn anew each second;
elsewhere each run that ends is a line. It reads files only, so it can be started, stopped (Ctrl-C) and repeated at any
time, on any machine that sees the folder. --once: one look. Exit code 0 when all runs finished, 1 when not.

  gptlab watch outputs/runs"""
_EVERY = 1.0  # seconds between two looks; longer where a look takes long
_PATIENCE = 30.0  # seconds in which nothing runs, before the sweep counts as stopped
_LOG_EVERY = 60.0  # seconds between lines on how it stands, where there is no terminal
_REDRAW = "\x1b[{}F\x1b[J"  # to the beginning of the line so many lines above, and nothing below


def main(arguments: Sequence[str]) -> int:
    """Print the view on stdout until the sweep has ended."""
    parser = Parser()
    parser.switch("--once")
    given = parser.read(arguments)
    if given.help:
        print(HELP)
        return 0
    if not given.words:
        raise ConfigError("watch: name a study's folder (gptlab ls lists them).", code="watch-what")
    from gptlab.show.watching import headline

    folder = one_folder("watch", given.words, "")
    eye = Eye(folder)
    if given.once:
        sweep = eye.look()
        eye.draw(sweep)
    else:
        sweep = follow(eye)
        if not sweep.is_over:
            tell(f"nothing runs any more; {headline(sweep)}")
    return 0 if sweep.is_over and sweep.count("finished") == len(sweep.runs) else 1


class Eye:
    """Looks at the study and shows what it sees, on a terminal in place of what it saw before."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.on_terminal = folder, sys.stdout.isatty()
        self._drawn, self._said, self._logged = 0, set[tuple[str, int]](), 0.0

    def look(self) -> Sweep:
        """The sweep now. GptlabError when the folder is no study (any more)."""
        from gptlab.store.upkeep.sweep_now import look

        return look(self.folder)

    def draw(self, sweep: Sweep) -> None:
        """The whole view; on a terminal it takes the place of the one before."""
        from gptlab.show.watching import view

        columns, rows = shutil.get_terminal_size((100, 1000)) if self.on_terminal else (100, 1000)
        lines = view(sweep, columns - 1, rows - 1)
        above = _REDRAW.format(self._drawn) if self._drawn and self.on_terminal else ""
        print(above + "\n".join(lines), flush=True)
        self._drawn = len(lines)

    def show(self, sweep: Sweep) -> None:
        """On a terminal the view; elsewhere a line for each run that has ended since, and at times how it stands."""
        from gptlab.show.watching import ended_line, headline
        from gptlab.store.upkeep.sweep_now import ENDED

        if self.on_terminal:
            self.draw(sweep)
            return
        for run in sweep.runs:
            if run.state in ENDED and (run.label, run.seed) not in self._said:
                self._said.add((run.label, run.seed))
                print(ended_line(run), flush=True)
        if time.monotonic() - self._logged > _LOG_EVERY or sweep.is_over:
            self._logged = time.monotonic()
            print(headline(sweep), flush=True)


def follow(eye: Eye, sleep: Callable[[float], None] = time.sleep) -> Sweep:
    """Show the sweep until every run has ended, or nothing has run for a while; the last look."""
    last_seen = time.monotonic()
    while True:
        began = time.monotonic()
        sweep = eye.look()
        eye.show(sweep)
        if sweep.count("running"):
            last_seen = time.monotonic()
        if sweep.is_over or time.monotonic() - last_seen > _PATIENCE:
            return sweep
        sleep(max(_EVERY, 5 * (time.monotonic() - began)))
