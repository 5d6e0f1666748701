"""The ledger as a table, for a terminal, Markdown and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.text import Text

from gptlab.comparing.comparison import UNCLEAR
from gptlab.comparing.ledger import Entry
from gptlab.show.columns import cell_entries
from gptlab.show.comparison_table import STYLES
from gptlab.show.formats import count, decimals
from gptlab.show.layout import Column, emit, make_console, pack, print_whole
from gptlab.store.csv_text import csv_text
from gptlab.store.study import describe_change
from gptlab.texts import markdown, printable

HEADS = (
    "change",
    "study",
    "seeds",
    "metric",
    "difference",
    "verdict",
    "date",
    "95 % interval",
    "parameters",
    "variant",
)
_WRAPPED = {"change": (24, 44), "study": (12, 24), "variant": (12, 24), "seeds": (8, 20), "verdict": (14, 30)}
_RIGHT = ("parameters", "difference", "95 % interval")
_KEY = 2  # columns that say what a line is about: they stand before each part of a table that is too wide


def print_ledger(entries: Sequence[Entry], width: int | None = None, file: TextIO | None = None) -> None:
    """One line per change and study; a change that several studies tried is named once."""
    console = make_console(width, file)
    lines = [_cells(entry) for entry in entries]
    columns = []
    for place, head in enumerate(HEADS):
        styles = [_style(entry) if head == "verdict" else "" for entry in entries]
        cells = [Text(line[place], style) for line, style in zip(lines, styles, strict=True)]
        columns.append(Column(head, cells, head not in _RIGHT, *_WRAPPED.get(head, (0, 0))))
    with console.capture() as capture:
        for part in pack(console, columns[:_KEY], [[[column] for column in columns[_KEY:]]]):
            print_whole(console, part)
            console.print()
    emit(console, capture.get())


def ledger_markdown(entries: Sequence[Entry]) -> str:
    """The same as a Markdown table."""
    lines = [list(HEADS), ["---"] * len(HEADS), *([markdown(cell) for cell in _cells(entry)] for entry in entries)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def ledger_csv(entries: Sequence[Entry]) -> str:
    """The documented keys with every digit; the change in words."""
    found = [{**entry.to_json(), "change": describe_change(entry.row.delta)} for entry in entries]
    return csv_text(list(found[0]) if found else [], (line.values() for line in found))


def _cells(entry: Entry) -> list[str]:
    row, cell = entry.row, entry.cell
    places = decimals([cell])
    difference, interval = (cell_entries([cell], name, places)[0].text for name in ("difference", "interval"))
    archived = f", {entry.archived} archived" if entry.archived else ""
    found = {
        "change": describe_change(row.delta),
        "study": row.study,
        "seeds": f"{row.seeds}{archived}",
        "metric": cell.metric,
        "difference": difference,
        "verdict": cell.words,
        "date": entry.when[:10],
        "95 % interval": interval,
        "parameters": count(row.parameters),
        "variant": row.label,
    }
    return [printable(found[head]) for head in HEADS]


def _style(entry: Entry) -> str:
    return STYLES.get(entry.cell.verdict, "dim" if entry.cell.verdict == UNCLEAR else "")
