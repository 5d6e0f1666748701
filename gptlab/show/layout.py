"""Laying out tables: sections of columns side by side while they fit, stacked where they do not, no number ever cut."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from gptlab.texts import lines

LABEL_WIDTH = 24
PIPED_WIDTH = 100
GAP = 2  # blank columns between two columns of a table


@dataclass(frozen=True)
class Column:
    """One column as it is printed: a header in at most two lines, and a cell per row.

    Numbers are never wrapped. Text may be squeezed down to `least` columns, and is happy with `comfortable`.
    """

    header: str
    cells: list[Text]
    left: bool = False
    least: int = 0  # 0: never wrapped
    comfortable: int = 0

    @property
    def natural(self) -> int:
        """The width at which nothing wraps."""
        return max(cell_len(line) for text in (self.header, *map(str, self.cells)) for line in text.split("\n"))

    @property
    def empty(self) -> bool:
        """Whether no row has anything here."""
        return not any(cell.plain for cell in self.cells)


Group = list[Column]  # columns that make no sense apart: a value and its difference
Section = list[Group]


def label(text: str, style: str = "") -> Text:
    """A variant's name, over as many lines as it needs."""
    return Text("\n".join(lines(text, LABEL_WIDTH)), style)


def make_console(width: int | None, file: TextIO | None, piped: int = PIPED_WIDTH) -> Console:
    """A console on `file`: no markup in user text, no notebook magic, and where there is no terminal the width that
    COLUMNS says, else `piped`."""
    file = file or sys.stdout
    if width is None and not file.isatty():
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdecimal() and int(columns) else piped
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False, force_jupyter=False)


@contextmanager
def written(piped: int = PIPED_WIDTH) -> Iterator[Console]:
    """A console on standard output for the body; what it printed is written when the body ends, without blanks at the
    ends of lines. `piped` as in `make_console`."""
    console = make_console(None, None, piped)
    with console.capture() as capture:
        yield console
    emit(console, capture.get())


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


def pack(console: Console, key: list[Column], parts: list[Section]) -> Iterable[Table]:
    """Each table takes as many sections as fit. A section too wide by itself is split between its groups."""
    pending: Group = []
    done = 0
    for part in parts:
        whole = [column for group in part for column in group]
        if pending and not fits(console, key + pending + whole):
            yield _table(key, pending, keep_all=not done)
            pending, done = [], done + 1
        for group in part:
            if pending and not fits(console, key + pending + group):
                yield _table(key, pending, keep_all=not done)
                pending, done = [], done + 1
            pending = pending + group
    if pending:
        yield _table(key, pending, keep_all=not done)


def fits(console: Console, columns: list[Column]) -> bool:
    """Whether the columns go into one line, squeezed no further than is comfortable."""
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
