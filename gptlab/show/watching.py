"""A sweep that goes on, as lines for a terminal: a row per variant, a column per seed.

No verdict stands here: what is not finished is no evidence, and `gptlab compare` says so in its own words.
"""

from __future__ import annotations

import math

from gptlab.show.formats import significant
from gptlab.store.upkeep.sweep_now import ENDED, WAITING, RunNow, Sweep
from gptlab.texts import clock, cut, printable

_LABEL = 24
_WIDEST = "3.412 100%"  # so that columns stay where they are while numbers come and go
_SHORT = {"planned": "·", "running": "...", "interrupted": "stopped"}


def headline(sweep: Sweep) -> str:
    """`runs: 7 of 15 ended (1 failed), 2 running, 6 to come  about 0:40 left`."""
    ended = sweep.count(*ENDED)
    unwell = [f"{number} {state}" for state in ENDED[1:] if (number := sweep.count(state))]
    trials = " trials" if sweep.deciding else ""
    words = [f"{ended} of {len(sweep.runs)}{trials} ended" + (f" ({', '.join(unwell)})" if unwell else "")]
    words += [f"{number} running"] if (number := sweep.count("running")) else []
    words += [f"{number} to come"] if (number := sweep.count(*WAITING)) else []
    words += [f"then {sweep.deciding} decide"] if sweep.deciding else []
    left = sweep.seconds_left
    return f"{printable(sweep.study)}: {', '.join(words)}{f'  about {clock(left)} left' if left is not None else ''}"


def view(sweep: Sweep, width: int, height: int) -> list[str]:
    """The whole picture in at most `height` lines of at most `width` characters; what has no room is said."""
    labels = list(dict.fromkeys(run.label for run in sweep.runs))
    seeds = list(dict.fromkeys(run.seed for run in sweep.runs))
    cells = {(run.label, run.seed): cell(run) for run in sweep.runs}
    wide = min(max(map(len, map(printable, labels))), _LABEL)
    texts = [*cells.values(), *(f"seed {seed}" for seed in seeds), *([] if sweep.is_over else [_WIDEST])]
    each = max(map(len, texts))
    room = max(1, (width - wide) // (each + 2))
    shown = _nearest(sweep, seeds, room)
    head = [headline(sweep), f"{printable(sweep.metric)}, or the last loss of what runs:"]
    rows = _rows(sweep, labels, height - len(head) - 2)
    table = [" " * wide + "".join(f"  {f'seed {seed}':>{each}}" for seed in shown)]
    for label in rows:
        values = "".join(f"  {cells.get((label, seed), ''):>{each}}" for seed in shown)
        table.append(f"{cut(printable(label), wide):<{wide}}{values}")
    cut_off = ((len(labels) - len(rows), "variants"), (len(seeds) - len(shown), "seeds"))
    missing = [f"{number} more {word}" for number, word in cut_off if number]
    lines = [*head, *table, *([f"and {', '.join(missing)}"] if missing else [])]
    return [cut(line.rstrip(), width) for line in lines][: max(1, height)]


def cell(run: RunNow) -> str:
    """`3.412`; of a run that goes on `3.61 42%`; else its state in a word."""
    value = "" if run.value is None or not math.isfinite(run.value) else significant(run.value, 4)
    if run.state == "running":
        return " ".join(filter(None, (value, "" if run.share is None else f"{math.floor(100 * run.share)}%"))) or "..."
    return value if run.state == "finished" and value else _SHORT.get(run.state, run.state)


def ended_line(run: RunNow) -> str:
    """One run that has ended, for a log: `relu seed 3: finished, 3.412, 12.1 s`."""
    words = [run.state, *([significant(run.value, 4)] if run.value is not None else [])]
    words += [f"{run.seconds:,.1f} s"] if run.seconds is not None else []
    words += [run.error.splitlines()[0]] if run.error and run.state != "finished" else []
    return printable(f"{run.label} seed {run.seed}: {', '.join(words)}")


def _nearest(sweep: Sweep, seeds: list[int], room: int) -> list[int]:
    """As many seeds as there is room for: those around the first one that has not ended."""
    open_ = {run.seed for run in sweep.runs if run.state not in ENDED}
    first = next((place for place, seed in enumerate(seeds) if seed in open_), len(seeds) - 1)
    start = max(0, min(first - room // 2, len(seeds) - room))
    return seeds[start : start + room]


def _rows(sweep: Sweep, labels: list[str], room: int) -> list[str]:
    """As many variants as there is room for, those with a run that goes on before others, in their order."""
    if len(labels) <= room:
        return labels
    running = {run.label for run in sweep.runs if run.state == "running"}
    chosen = {*sorted(labels, key=lambda label: label not in running)[: max(1, room)]}
    return [label for label in labels if label in chosen]
