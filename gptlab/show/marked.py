"""The marks that people set beside runs, as a listing shows them, and which runs it leaves out for them."""

from __future__ import annotations

from collections.abc import Sequence

from gptlab.store import where
from gptlab.store.run_listing import RunRow
from gptlab.texts import cut, printable

_LONGEST = 100  # characters of a note in a listing; `gptlab note RUN` has all of it


def with_tags(rows: list[RunRow], tags: Sequence[str]) -> list[RunRow]:
    """The rows that have all of these tags."""
    return [row for row in rows if set(tags) <= set(row.marks.tags)]


def without_archived(rows: list[RunRow], condition: str) -> list[RunRow]:
    """The rows that are not archived; all of them where the condition asks for that itself."""
    if condition and "archived" in where.parse(condition)[1]:
        return rows
    return [row for row in rows if not row.marks.archived]


def said_hidden(number: int) -> str:
    """What a listing says of the runs that it does not show."""
    runs = "1 archived run is" if number == 1 else f"{number:,} archived runs are"
    return f"{runs} not shown; gptlab ls --archived shows everything."


def beside(row: RunRow) -> str:
    """What follows the state in a run's line: `  [keep, paper]  archived`."""
    tags = f"  [{', '.join(map(printable, row.marks.tags))}]" if row.marks.tags else ""
    return f"{tags}  archived" if row.marks.archived else tags


def below(row: RunRow) -> list[str]:
    """A line for each note, and one for marks that cannot be read."""
    lines = [cut(printable(" ".join(note.text.split())), _LONGEST) for note in row.marks.notes]
    return [
        *(f"    note: {line}" for line in lines),
        *([f"    {printable(row.marks.problem)}"] if row.marks.problem else []),
    ]


def asked(tags: str | None, condition: str | None) -> str:
    """In words: what runs were asked to be."""
    parts = [f"--tag {tags}"] if tags else []
    parts += [f"--where '{condition}'"] if condition else []
    return f" {' '.join(parts)}"
