"""`gptlab ls`: every run on disk with its state, newest study first. JSON only, so that thousands list at once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import TextIO

from gptlab.errors import GptlabError
from gptlab.results.cells import column, count, printable
from gptlab.results.reading import PLAN, STAMP, load_outcome, load_plan

_DEPTH = 2  # <output_dir>/<study>/<time>


@dataclass(frozen=True)
class RunRow:
    """One run, or one damaged study that hides its runs (no label then). `when` is the study's start."""

    study: str
    when: str
    label: str
    seed: int | None
    state: str
    error: str
    parameters: int | float | None
    loss: int | float | None
    seconds: float | None
    folder: Path


def list_runs(output_dir: Path | str) -> list[RunRow]:
    """All runs under `output_dir` (or in one study's folder), newest study first; empty when there are none.

    Reading only. A damaged file costs its run, a damaged plan is rebuilt from the run folders.
    """
    found = sorted(((_when(folder), folder) for folder in _study_folders(Path(output_dir), 0)), reverse=True)
    return [row for when, folder in found for row in _study_rows(folder, when)]


def print_runs(output_dir: Path | str, console_width: int | None = None, file: TextIO | None = None) -> None:
    """Print the listing: a line per study, a line per run, and the first line of each error."""
    from rich.text import Text

    from gptlab.results.table import STATE_STYLES, emit, make_console

    console = make_console(console_width, file)
    rows = list_runs(output_dir)
    lines = _aligned(rows)
    with console.capture() as capture:
        if not rows:
            console.print(Text(f"No runs in {printable(str(output_dir))}."))
        for folder, group in groupby(zip(rows, lines, strict=True), key=lambda pair: _study_of(pair[0])):
            runs = list(group)
            states = Counter(row.state for row, _ in runs)
            summary = ", ".join(f"{number} {state}" for state, number in states.items())
            title = Text.assemble((printable(runs[0][0].study), "bold"), f"  {runs[0][0].when}  {summary}")
            console.print(title, soft_wrap=True)
            console.print(Text(f"  {printable(str(folder))}", style="dim"), soft_wrap=True)
            for row, (before, after) in runs:
                state = (f"{row.state:<11}", STATE_STYLES.get(row.state, "yellow"))
                console.print(Text.assemble(before, state, after), soft_wrap=True)
                if row.error:
                    console.print(Text(f"    {printable(row.error.splitlines()[0])}", style="red"), soft_wrap=True)
            console.print()
    emit(console, capture.get().rstrip("\n") + "\n")


def _study_folders(folder: Path, depth: int) -> Iterator[Path]:
    if os.path.lexists(folder / PLAN) or STAMP.fullmatch(folder.name):
        yield folder
    elif depth < _DEPTH:
        try:
            with os.scandir(folder) as entries:
                inside = [Path(entry.path) for entry in entries if entry.is_dir()]
        except OSError:
            return
        for child in inside:
            yield from _study_folders(child, depth + 1)


def _when(folder: Path) -> str:
    stamp = STAMP.fullmatch(folder.name)
    if stamp:
        return f"{stamp[1]} {stamp[2]}:{stamp[3]}:{stamp[4]}"
    try:  # a folder that somebody renamed
        return datetime.fromtimestamp((folder / PLAN).stat().st_mtime).strftime("%Y-%m-%d %H:%M:%S")
    except OSError:
        return ""


def _study_rows(folder: Path, when: str) -> Iterator[RunRow]:
    try:
        plan = load_plan(folder)
    except GptlabError as error:
        if os.path.lexists(folder / PLAN):
            name = folder.parent.name
            yield RunRow(name, when, "", None, "damaged", str(error), None, None, None, folder)
        return
    for run in plan.runs:
        outcome = load_outcome(folder / run.folder)
        yield RunRow(
            study=plan.study,
            when=when,
            label=run.label,
            seed=run.seed,
            state=outcome.state,
            error=outcome.error,
            parameters=outcome.metrics.get("parameters"),
            loss=outcome.metrics.get("loss"),
            seconds=outcome.seconds,
            folder=folder / run.folder,
        )


def _study_of(row: RunRow) -> Path:
    return row.folder.parent if row.label else row.folder


def _aligned(rows: list[RunRow]) -> list[tuple[str, str]]:
    """For each row the text before its state and the text after it, aligned over the whole listing."""
    from rich.cells import cell_len

    labels = [printable(row.label) for row in rows]
    wide = min(max(map(cell_len, labels), default=0), 32)
    seeds = ["" if row.seed is None else f"seed {row.seed}" for row in rows]
    parameters = [f"{count(row.parameters)} parameters" if row.parameters is not None else "" for row in rows]
    losses = [f"loss {text}" if text else "" for text in column([row.loss for row in rows], at_least=4)]
    seconds = ["" if row.seconds is None else f"{row.seconds:,.1f} s" for row in rows]
    lefts = [f"  {label}{' ' * (wide - cell_len(label))}  {seed}" for label, seed in zip(labels, seeds, strict=True)]
    widest = max(map(cell_len, lefts), default=0)
    rights = [_right(texts) for texts in (parameters, losses, seconds)]
    return [(left + " " * (widest + 2 - cell_len(left)), "  ".join(r)) for left, *r in zip(lefts, *rights, strict=True)]


def _right(texts: list[str]) -> list[str]:
    widest = max(map(len, texts), default=0)
    return [text.rjust(widest) for text in texts]
