"""The comparison in the terminal: a table per metric, the primary one first, and what to know before believing it.

A verdict stands in the row of the difference that it is about, however narrow the terminal is. What is the same in
every row is said once, below the table's title.
"""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.text import Text

from gptlab.comparing.advice import advice
from gptlab.comparing.caption import caption, lost_runs
from gptlab.comparing.comparison import BETTER, WORSE, Comparison
from gptlab.show.grid import SCREEN, Column, Grid
from gptlab.show.layout import emit, fits, make_console, pack, print_whole
from gptlab.show.said_once import views
from gptlab.show.study_columns import LABEL_WIDTH, Group
from gptlab.show.study_columns import Column as Shown
from gptlab.show.written_values import Entry
from gptlab.texts import lines, printable

STYLES = {BETTER: "bold green", WORSE: "red"}
# Columns that stand together; `pack` puts groups side by side while they fit.
VALUES, CLAIM, TEST, VERDICT = ("mean", "half_width"), ("difference", "low", "high"), ("p_corrected",), ("verdict",)
REST = (
    ("relative", "wins"),
    ("note",),
    ("changed", "seeds"),
    ("parameters", "parameters_percent", "flops_percent"),
    ("p_sign_flip", "p_equivalence", "noise_units", "correlation", "detectable", "n_needed"),
)
# May be squeezed: (least, comfortable) width.
TEXTS = {"changed": (24, 30), "note": (24, 40), "seeds": (12, 24), "verdict": (14, 26)}


def print_comparison(comparison: Comparison, console_width: int | None = None, file: TextIO | None = None) -> None:
    """Print to `file` (standard output), as wide as the terminal unless told otherwise."""
    console = make_console(console_width, file)
    with console.capture() as capture:
        title, question = printable(comparison.title), printable(comparison.question)
        console.print()
        console.print(Text.assemble((title, "bold"), ": " if question else "", question))
        console.print()
        print_grids(console, comparison)
        console.print(Text(printable(caption(comparison)), style="dim"))
        print_remarks(console, comparison)
    emit(console, capture.get())


def print_grids(console: Console, comparison: Comparison) -> None:
    """One table per metric, and above them what they lack."""
    print_advice(console, comparison)
    for shown, common in views(comparison, SCREEN):
        console.print(Text(printable(shown.title), style="bold"))
        if common:
            console.print(Text(common, style="dim"))
        for table in pack(console, [_column(shown, 0)], _sections(console, shown)):
            print_whole(console, table)
            console.print()


def print_advice(console: Console, comparison: Comparison) -> None:
    """What is missing for verdicts, and the command that adds it, in one line that can be copied."""
    if found := advice(comparison):
        console.print(Text(printable(found[0]), style="yellow"))
        console.print(Text(f"More seeds: {printable(found[1])}"), soft_wrap=True)
        console.print()


def print_remarks(console: Console, comparison: Comparison) -> None:
    """Failed runs, notes and warnings, a line each."""
    for lost in lost_runs(comparison):
        console.print(Text(lost, style="red"))
    for note in comparison.notes:
        console.print(Text(note, style="dim"))
    for warning in comparison.warnings:
        console.print(Text.assemble(("Warning: ", "bold yellow"), printable(warning)))


def _sections(console: Console, grid: Grid) -> list[list[Group]]:
    """Value, difference, p, verdict in the order of thought if they fit in one line; else the verdict comes sooner."""
    places = {column.name: place for place, column in enumerate(grid.columns)}
    known = {"variant", *VALUES, *CLAIM, *TEST, *VERDICT, *(name for names in REST for name in names)}
    rest = tuple(name for name in places if name not in known)
    budgets: dict[str, list[str]] = {}
    for name in rest:
        budgets.setdefault(name.rpartition("_at_")[2], []).append(name)

    def made(*names: str) -> Group:
        return [_column(grid, places[name]) for name in names if name in places]

    line = made(*VALUES, *CLAIM, *TEST, *VERDICT)
    lead = [line] if fits(console, made("variant") + line) else [made(*CLAIM, *VERDICT), made(*VALUES, *TEST)]
    groups = [*lead, *(made(*names) for names in (*budgets.values(), *REST))]
    return [[group] for group in groups if group]


def _column(grid: Grid, place: int) -> Shown:
    column: Column = grid.columns[place]
    least, comfortable = TEXTS.get(column.name, (0, 0))
    header = column.header.replace(" ", "\n", 1) if column.kind == "number" else column.header.replace(" at ", "\nat ")
    entries = [line[place] for line in grid.lines]
    if column.name == "variant":
        texts = [Text("\n".join(lines(e.text, LABEL_WIDTH)), "bold" if e.bold else "") for e in entries]
        return Shown(header, texts, left=True)
    texts = [_text(column, entry) for entry in entries]
    return Shown(header, texts, left=column.kind == "text", least=least, comfortable=comfortable)


def _text(column: Column, entry: Entry) -> Text:
    if column.kind == "text":
        return Text(entry.text.replace("; ", "\n"), STYLES.get(entry.text, ""))
    text = f"{entry.value:,}" if column.name == "parameters" and isinstance(entry.value, int) else entry.text
    return Text(text, justify="right")
