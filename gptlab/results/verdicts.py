"""The comparison in the terminal: a table per metric, the primary one first, and what to know before believing it."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.text import Text

from gptlab.results import cells
from gptlab.results.comparison import BETTER, WORSE, Comparison
from gptlab.results.exports import caption
from gptlab.results.grid import SCREEN, Column, Entry, Grid, grids
from gptlab.results.layout import emit, make_console, pack, print_whole
from gptlab.results.sections import LABEL_WIDTH, Group
from gptlab.results.sections import Column as Shown

STYLES = {BETTER: "bold green", WORSE: "red"}
# Columns that stand together; `pack` puts groups side by side while they fit.
GROUPS = (
    ("changed", "seeds"),
    ("mean", "half_width"),
    ("difference", "low", "high", "relative"),
    ("p_corrected", "wins"),
    ("verdict", "note"),
    ("parameters", "parameters_percent", "flops_percent"),
    ("p_sign_flip", "p_equivalence", "noise_units", "correlation", "detectable", "n_needed"),
)
OF_THE_ROW = ("changed", "parameters", "parameters_percent", "flops_percent")
TEXTS = {"changed": (24, 30), "note": (24, 40), "seeds": (12, 24)}  # may be squeezed: (least, comfortable) width


def print_comparison(comparison: Comparison, console_width: int | None = None, file: TextIO | None = None) -> None:
    """Print to `file` (standard output), as wide as the terminal unless told otherwise."""
    console = make_console(console_width, file)
    with console.capture() as capture:
        title, question = cells.printable(comparison.title), cells.printable(comparison.question)
        console.print()
        console.print(Text.assemble((title, "bold"), ": " if question else "", question))
        console.print()
        print_grids(console, comparison)
        console.print(Text(cells.printable(caption(comparison)), style="dim"))
        print_remarks(console, comparison)
    emit(console, capture.get())


def print_grids(console: Console, comparison: Comparison) -> None:
    """One table per metric."""
    for number, grid in enumerate(grids(comparison)):
        shown = grid.at(SCREEN)
        if number:  # what a variant is has been said
            shown = shown.without(OF_THE_ROW)
        console.print(Text(cells.printable(shown.title), style="bold"))
        for table in pack(console, [_column(shown, 0)], _sections(shown)):
            print_whole(console, table)
            console.print()


def print_remarks(console: Console, comparison: Comparison) -> None:
    """Failed runs, notes and warnings, a line each."""
    for row in comparison.rows:
        for failure in row.failures:
            console.print(Text(cells.printable(f"{row.label}: {failure}"), style="red"))
    for note in comparison.notes:
        console.print(Text(note, style="dim"))
    for warning in comparison.warnings:
        console.print(Text.assemble(("Warning: ", "bold yellow"), cells.printable(warning)))


def _sections(grid: Grid) -> list[list[Group]]:
    places = {column.name: place for place, column in enumerate(grid.columns)}
    rest = tuple(name for name in places if name != "variant" and not any(name in names for names in GROUPS))
    budgets: dict[str, list[str]] = {}
    for name in rest:
        budgets.setdefault(name.rpartition("_at_")[2], []).append(name)
    groups = [GROUPS[0], *map(tuple, budgets.values()), *GROUPS[1:]]
    kept = [[_column(grid, places[name]) for name in names if name in places] for names in groups]
    return [[group] for group in kept if group]


def _column(grid: Grid, place: int) -> Shown:
    column: Column = grid.columns[place]
    least, comfortable = TEXTS.get(column.name, (0, 0))
    header = column.header.replace(" ", "\n", 1) if column.kind == "number" else column.header.replace(" at ", "\nat ")
    entries = [line[place] for line in grid.lines]
    if column.name == "variant":
        texts = [Text("\n".join(cells.lines(e.text, LABEL_WIDTH)), "bold" if e.bold else "") for e in entries]
        return Shown(header, texts, left=True)
    texts = [_text(column, entry) for entry in entries]
    return Shown(header, texts, left=column.kind == "text", least=least, comfortable=comfortable)


def _text(column: Column, entry: Entry) -> Text:
    if column.kind == "text":
        return Text(entry.text.replace("; ", "\n"), STYLES.get(entry.text, ""))
    text = f"{entry.value:,}" if column.name == "parameters" and isinstance(entry.value, int) else entry.text
    return Text(text, justify="right")
