"""The study in the terminal: the first thing that a user sees.

Sections of columns are packed side by side while they fit, and stacked where they do not, so that at any width every
number is whole. Without a terminal (a pipe, a file, a notebook) it is plain text.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from gptlab.results.cells import SAME, printable
from gptlab.results.sections import STATE_STYLES, Column, Group, Rows, Section, key_columns, prompts, rows_of, sections
from gptlab.results.study import Study

__all__ = ["STATE_STYLES", "emit", "make_console", "print_study"]

PIPED_WIDTH = 100
GAP = 2  # blank columns between two columns of a table


def print_study(study: Study, console_width: int | None = None, file: TextIO | None = None) -> None:
    """Print the table of `study` to `file` (standard output), as wide as the terminal unless told otherwise."""
    console = make_console(console_width, file)
    rows = rows_of(study)
    with console.capture() as capture:
        _print_title(console, study)
        for table in _tables(console, key_columns(rows), sections(rows)):
            print_whole(console, table)
            console.print()
        _print_caption(console, study, rows)
        for warning in warnings(study):
            console.print(Text.assemble(("Warning: ", "bold yellow"), printable(warning)))
    emit(console, capture.get())


def make_console(width: int | None, file: TextIO | None) -> Console:
    """A console on `file`: no markup in user text, no notebook magic, a fixed width where there is no terminal."""
    file = file or sys.stdout
    if width is None and not file.isatty():
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdecimal() and int(columns) else PIPED_WIDTH
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False, force_jupyter=False)


def emit(console: Console, text: str) -> None:
    """Write captured output: no trailing blanks, and escapes for characters that the file's encoding lacks."""
    text = "\n".join(line.rstrip() for line in text.split("\n"))
    encoding = getattr(console.file, "encoding", None) or "utf-8"
    console.file.write(text.encode(encoding, errors="backslashreplace").decode(encoding))
    console.file.flush()


def print_whole(console: Console, table: Table) -> None:
    """Print a table uncut: wider than the console, if its numbers are."""
    width = console.width
    # `console.measure` would stop at the console's own width.
    console.width = max(width, Measurement.get(console, console.options.update(max_width=10_000), table).minimum)
    console.print(table, crop=False)
    console.width = width


def warnings(study: Study) -> list[str]:
    """What a reader must know before believing the numbers: the runs' own warnings, and variants that look alike."""
    found = [f"plan.json could not be used ({study.plan.problem}); the runs are those found in the folder."]
    found = found if study.plan.problem else []
    several = study.runs["seed"].nunique() > 1
    for label, seed, texts in zip(study.runs["label"], study.runs["seed"], study.runs["warnings"], strict=True):
        who = f"{label} (seed {seed})" if several else label
        found += [f"{who}: {text}" for text in texts.splitlines()]
    return found + look_alikes(study)


def look_alikes(study: Study) -> list[str]:
    """One sentence per set of variants whose loss and gradients are bit for bit the same with the same seed."""
    if study.layers.empty or "loss" not in study.runs:
        return []
    losses = dict(zip(study.runs["run"], study.runs["loss"], strict=True))
    measured: dict[object, list[str]] = {}
    for run, rows in study.layers.groupby("run", sort=False):
        table = rows[["step", "layer", "part", "metric", "value"]].to_csv(index=False)
        labels = measured.setdefault((rows["seed"].iloc[0], losses[str(run)], table), [])
        labels.append(str(rows["label"].iloc[0]))
    sets = dict.fromkeys(tuple(labels) for labels in measured.values() if len(labels) > 1)
    return [_alike(study, labels) for labels in sets]


def _alike(study: Study, labels: Sequence[str]) -> str:
    text = f"{', '.join(labels[:-1])} and {labels[-1]} measured exactly the same: are they the same model?"
    changed = study.runs["changed"][study.runs["label"].isin(labels)]
    return text + (" Dropout acts in training only." if changed.str.contains("drop_").any() else "")


def _tables(console: Console, key: list[Column], parts: list[Section]) -> Iterable[Table]:
    """Each table takes as many sections as fit. A section too wide by itself is split between its groups."""
    pending: Group = []
    done = 0
    for part in parts:
        whole = [column for group in part for column in group]
        if pending and not _fits(console, key + pending + whole):
            yield _table(key, pending, keep_all=not done)
            pending, done = [], done + 1
        for group in part:
            if pending and not _fits(console, key + pending + group):
                yield _table(key, pending, keep_all=not done)
                pending, done = [], done + 1
            pending = pending + group
    if pending:
        yield _table(key, pending, keep_all=not done)


def _fits(console: Console, columns: list[Column]) -> bool:
    needed = [min(column.comfortable, column.natural) if column.least else column.natural for column in columns]
    return sum(needed) + GAP * (len(needed) - 1) <= console.width


def _table(key: list[Column], columns: list[Column], keep_all: bool) -> Table:
    """Rows without any content are left out, unless `keep_all`; a label is written once for all its seeds."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True, header_style="bold")
    two_lines = any("\n" in column.header for column in key + columns)
    for column in key + columns:
        table.add_column(
            Text(column.header if "\n" in column.header or not two_lines else f"\n{column.header}"),
            justify="left" if column.left else "right",
            no_wrap=not column.least,
            overflow="fold",
            min_width=min(column.least or column.natural, column.natural),
        )
    previous = None
    for names, texts in zip(_across(key), _across(columns), strict=True):
        if keep_all or any(text.plain for text in texts):
            label = Text("") if names[0] == previous else names[0]
            previous = names[0]
            table.add_row(label, *names[1:], *texts)
    return table


def _across(columns: list[Column]) -> list[tuple[Text, ...]]:
    return list(zip(*(column.cells for column in columns), strict=True))


def _print_title(console: Console, study: Study) -> None:
    question = printable(study.plan.question)
    console.print()
    console.print(Text.assemble((printable(study.plan.study), "bold"), ": " if question else "", question))
    console.print()


def _print_caption(console: Console, study: Study, rows: Rows) -> None:
    seeds = list(dict.fromkeys(str(seed) for seed in study.runs["seed"]))
    states = Counter(study.runs["state"])
    others = ", ".join(f"{number} {state}" for state, number in states.items() if state != "finished")
    names = list(dict.fromkeys(study.runs["label"][study.runs["is_baseline"]]))
    facts = [] if names == ["baseline"] else [f'Baseline: "{" and ".join(names)}".' if names else "No baseline."]
    facts.append(f"Seed{'s' if len(seeds) > 1 else ''}: {', '.join(seeds)}.")
    facts.append(f"Finished: {states['finished']} of {len(study.runs)} runs{f' ({others})' if others else ''}.")
    guesses = list(dict.fromkeys(f"{value:.4f}" for value in rows.values("ln_vocab_size") if value is not None))
    if guesses:
        facts.append(f"ln(vocab_size) = {' or '.join(guesses)}, the loss of guessing all words equally.")
    if not study.layers.empty:
        facts.append("L2 norm, mean |g|: gradient of the loss in the first layer, the last layer, and the whole model.")
    texts = prompts(rows)
    if len(texts) == 1:
        facts.append(f'Prompt: "{printable(texts[0])}".')
    if study.has_baseline:
        facts.append(f"{SAME} is exactly the baseline's value.")
    console.print(Text(printable(" ".join(facts)), style="dim"))
    console.print(Text(f"Files: {printable(str(study.folder))}", style="dim"), soft_wrap=True)
