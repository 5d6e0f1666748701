"""The comparison in the terminal: the primary metric's table, one for all others, and what to know before believing it.

A verdict stands in the row of the difference that it is about, however narrow the terminal is. What is the same in
every row is said once, below the table's title.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from gptlab.comparing.advice import advice
from gptlab.comparing.caption import caption, lost_runs
from gptlab.comparing.comparison import (
    BETTER,
    DIFFERENT,
    EQUIVALENT,
    NOT_COMPARABLE,
    VERDICTS,
    WORSE,
    Comparison,
)
from gptlab.comparing.which_metrics import declared
from gptlab.show.columns import SCREEN, Column, Entry
from gptlab.show.layout import Column as Shown
from gptlab.show.layout import Group, emit, fits, label, make_console, pack, print_whole
from gptlab.show.other_metrics import other_metrics
from gptlab.show.tables import Table, tables
from gptlab.texts import printable

STYLES = {BETTER: "bold green", WORSE: "red"}
MARKS = {BETTER: "▲", WORSE: "▼", DIFFERENT: "◆", EQUIVALENT: "≈", NOT_COMPARABLE: "×"}
# Columns that stand together; `pack` puts groups side by side while they fit.
VALUES, CLAIM, TEST, VERDICT = ("mean", "half_width"), ("difference", "low", "high"), ("p_corrected",), ("verdict",)
REST = (
    ("relative", "wins"),
    ("note",),
    ("tuned", "trials", "sensitivity", "at_baseline"),
    ("changed", "matched", "seeds"),
    ("parameters", "parameters_percent", "flops_percent"),
    ("p_sign_flip", "p_equivalence", "noise_units", "correlation", "detectable", "n_needed"),
)
# May be squeezed: (least, comfortable) width.
TEXTS = {
    "changed": (24, 30),
    "matched": (24, 40),
    "tuned": (24, 44),
    "at_baseline": (20, 34),
    "note": (24, 40),
    "seeds": (12, 24),
    "verdict": (14, 26),
}


def print_comparison(
    comparison: Comparison,
    console_width: int | None = None,
    file: TextIO | None = None,
    *,
    every_metric: bool = False,
    columns: Sequence[str] = (),
) -> None:
    """Print to `file` (standard output), as wide as the terminal unless told otherwise.

    The primary metric has a table of its own and all others share one, unless `every_metric`. `columns`: one table with
    these alone.
    """
    console = make_console(console_width, file)
    with console.capture() as capture:
        title, question = printable(comparison.title), printable(comparison.question)
        console.print()
        console.print(Text.assemble((title, "bold"), ": " if question else "", question))
        console.print()
        print_tables(console, comparison, every_metric=every_metric, columns=columns)
        console.print(Text(printable(caption(comparison)), style="dim"))
        print_remarks(console, comparison)
    emit(console, capture.get())


def print_tables(
    console: Console, comparison: Comparison, *, every_metric: bool = False, columns: Sequence[str] = ()
) -> None:
    """The tables, and above them what they lack."""
    print_advice(console, comparison)
    others = None if columns or every_metric else other_metrics(comparison)
    for table in tables(comparison, SCREEN, columns, primary_only=bool(others)):
        console.print(Text(table.title, style="bold"))
        if table.common:
            console.print(Text(table.common, style="dim"))
        for part in pack(console, [_column(table, 0)], _sections(console, table)):
            print_whole(console, part)
            console.print()
        if empty := [name for name in columns if not table.has(name)]:
            console.print(Text(f"No variant has anything here: {', '.join(empty)}.", style="dim"))
            console.print()
    if others:
        _print_others(console, others)


def _print_others(console: Console, table: Table) -> None:
    """One table for all other metrics; a mark says what a verdict is, and a line below what a mark is."""
    console.print(Text(f"{table.title} (exploratory): the baseline's mean, each variant's difference to it", "bold"))
    groups = []
    for place, column in enumerate(table.columns[1:], 1):
        marked = any(line[place].verdict in MARKS for line in table.lines)
        cells = []
        for line in table.lines:
            entry = line[place]
            mark = f" {MARKS.get(entry.verdict, ' ')}" if marked and entry.text else ""
            cells.append(Text(f"{entry.text}{mark}", STYLES.get(entry.verdict, ""), justify="right"))
        groups.append([Shown(f"{column.name}\n{declared(column.name).unit}", cells)])
    for part in pack(console, [_column(table, 0)], [groups]):
        print_whole(console, part)
        console.print()
    used = {entry.verdict for line in table.lines for entry in line}
    said = ", ".join(f"{MARKS[word]} {word}" for word in VERDICTS if word in used and word in MARKS)
    said = f"{said}; unmarked: no clear difference, or not tested. " if said else ""
    console.print(Text(f"{said}All of every metric: gptlab compare STUDY --all; of one: --metric NAME.", style="dim"))
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


def _sections(console: Console, table: Table) -> list[list[Group]]:
    """Value, difference, p, verdict in the order of thought if they fit in one line; else the verdict comes sooner."""
    places = {column.name: place for place, column in enumerate(table.columns)}
    known = {"variant", *VALUES, *CLAIM, *TEST, *VERDICT, *(name for names in REST for name in names)}
    rest = tuple(name for name in places if name not in known)
    budgets: dict[str, list[str]] = {}
    for name in rest:
        budgets.setdefault(name.rpartition("_at_")[2], []).append(name)

    def made(*names: str) -> Group:
        return [_column(table, places[name]) for name in names if name in places]

    line = made(*VALUES, *CLAIM, *TEST, *VERDICT)
    lead = [line] if fits(console, made("variant") + line) else [made(*CLAIM, *VERDICT), made(*VALUES, *TEST)]
    groups = [*lead, *(made(*names) for names in (*budgets.values(), *REST))]
    return [[group] for group in groups if group]


def _column(table: Table, place: int) -> Shown:
    column: Column = table.columns[place]
    least, comfortable = TEXTS.get(column.name, (0, 0))
    header = column.header.replace(" ", "\n", 1) if column.kind == "number" else column.header.replace(" at ", "\nat ")
    entries = [line[place] for line in table.lines]
    if column.name == "variant":
        return Shown(header, [label(entry.text, "bold" if entry.bold else "") for entry in entries], left=True)
    texts = [_text(column, entry) for entry in entries]
    return Shown(header, texts, left=column.kind == "text", least=least, comfortable=comfortable)


def _text(column: Column, entry: Entry) -> Text:
    if column.kind == "text":
        return Text(entry.text.replace("; ", "\n"), STYLES.get(entry.verdict, ""))
    return Text(entry.text, justify="right")
