"""A comparison laid out in columns: one grid per metric. Each entry has its value and the text that readers see.

Every format shows these grids, so that no two of them can disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gptlab.comparing.advice import remainder, too_few
from gptlab.comparing.comparison import NOT_COMPARABLE, TOO_FEW, Cell, Comparison, Row
from gptlab.comparing.which_metrics import declared
from gptlab.show.written_values import Entry, decimals, factor, number, percent_entry, text_entry, value_entry
from gptlab.store.study import describe_change

PAPER, SCREEN, FILE = 1, 2, 3  # where a column is shown: everywhere; not in print; only in files for programs
EXPLORATORY = "exploratory"


@dataclass(frozen=True)
class Column:
    """`name` for programs, `header` for readers."""

    name: str
    header: str
    level: int = FILE
    kind: Literal["text", "number"] = "number"


@dataclass(frozen=True)
class Grid:
    """One table: a title, columns, and a line per variant."""

    title: str
    metric: str
    columns: tuple[Column, ...]
    lines: tuple[tuple[Entry, ...], ...]

    def at(self, level: int) -> Grid:
        """Only the columns for this level that have something in them, but always who and what."""
        kept = [
            place
            for place, column in enumerate(self.columns)
            if column.level <= level and (not place or any(line[place].text for line in self.lines))
        ]
        return self._only(kept)

    def without(self, names: Sequence[str]) -> Grid:
        """All but the columns called `names`."""
        return self._only([place for place, column in enumerate(self.columns) if column.name not in names])

    def _only(self, kept: Sequence[int]) -> Grid:
        columns = tuple(self.columns[place] for place in kept)
        return Grid(
            self.title, self.metric, columns, tuple(tuple(line[place] for place in kept) for line in self.lines)
        )


_ROW = (
    Column("variant", "variant", PAPER, "text"),
    Column("changed", "changed", PAPER, "text"),
    Column("study", "study", FILE, "text"),
    Column("baseline", "baseline", FILE, "text"),
    Column("seeds", "seeds", PAPER, "text"),
    Column("n_planned", "planned"),
    Column("n_finished", "finished"),
    Column("n_failed", "failed"),
    Column("n_diverged", "diverged"),
    Column("n_missing", "missing"),
    Column("parameters", "parameters", SCREEN),
    Column("parameters_difference", "parameters difference"),
    Column("parameters_percent", "parameters %", PAPER),
    Column("flops", "FLOPs/token"),
    Column("flops_difference", "FLOPs difference"),
    Column("flops_percent", "FLOPs %", PAPER),
)
_CELL = (
    Column("n", "n"),
    Column("mean", "mean", PAPER),
    Column("sd", "sd"),
    Column("half_width", "± 95 % t", PAPER),
    Column("pairs", "pairs"),
    Column("scale", "scale", FILE, "text"),
    Column("difference", "difference", PAPER),
    Column("relative", "%", SCREEN),
    Column("low", "low", PAPER),
    Column("high", "high", PAPER),
    Column("interval", "interval", FILE, "text"),
    Column("p", "p uncorrected"),
    Column("p_corrected", "p", PAPER),
    Column("p_sign_flip", "p sign-flip", SCREEN),
    Column("p_equivalence", "p equivalence", SCREEN),
    Column("wins", "wins", PAPER),
    Column("noise_units", "noise units", SCREEN),
    Column("effect", "effect in sd"),
    Column("correlation", "r", SCREEN),
    Column("detectable", "detectable", SCREEN),
    Column("n_needed", "seeds needed", SCREEN),
    Column("verdict", "verdict", PAPER, "text"),
    Column("note", "note", PAPER, "text"),
    Column("exploratory", "exploratory", FILE, "text"),
)
_STEP = (
    Column("mean", "mean", PAPER),
    Column("difference", "difference", PAPER),
    Column("low", "low", SCREEN),
    Column("high", "high", SCREEN),
    Column("p_corrected", "p"),
    Column("pairs", "pairs"),
    Column("verdict", "verdict", PAPER, "text"),
)


def grids(comparison: Comparison) -> list[Grid]:
    """One grid per metric; with budgets, one that has them side by side comes first."""
    said = bool(too_few(comparison))
    found = [_by_step(comparison, name, said) for name in comparison.step_metrics]
    return found + [_of_metric(comparison, name, said) for name in comparison.metrics]


def _of_metric(comparison: Comparison, name: str, said: bool) -> Grid:
    found = [row.cell(name) for row in comparison.rows]
    places = decimals(found)
    lines = [
        (*_row_entries(row, cell.bold), *_cell_entries(cell, places, _CELL, said))
        for row, cell in zip(comparison.rows, found, strict=True)
    ]
    return Grid(_title(comparison, name), name, (*_ROW, *_CELL), tuple(lines))


def _by_step(comparison: Comparison, name: str, said: bool) -> Grid:
    columns: list[Column] = list(_ROW)
    lines = [list(_row_entries(row, False)) for row in comparison.rows]
    places = decimals([row.cell(name, step) for row in comparison.rows for step in comparison.steps])
    for step in comparison.steps:
        columns += [
            Column(f"{column.name}_at_{step}", f"{column.header} at {step}", column.level, column.kind)
            for column in _STEP
        ]
        for row, line in zip(comparison.rows, lines, strict=True):
            line += _cell_entries(row.cell(name, step), places, _STEP, said)
    title = f"{_title(comparison, name)}, at steps {', '.join(map(str, comparison.steps))}"
    return Grid(title, name, tuple(columns), tuple(map(tuple, lines)))


def _title(comparison: Comparison, name: str) -> str:
    about = declared(name)
    role = "primary metric" if name == comparison.primary_metric else EXPLORATORY
    role = "counted" if about.kind == "exact" else role
    if about.kind == "timing":  # corrected by itself; as the primary metric, as any primary metric is
        role = ", ".join((*([role] if role != EXPLORATORY else []), "timing: depends on the machine and its load"))
    better = f"{'neither direction' if about.direction == 'neither' else about.direction} is better"
    direction = "" if (about.kind, about.direction) == ("exact", "neither") else better
    words = ", ".join(filter(None, (about.unit, direction, role)))
    return f"{name} ({words})"


def _row_entries(row: Row, bold: bool) -> Iterable[Entry]:
    for column in _ROW:
        if column.name == "variant":
            yield text_entry(row.label, bold)
        elif column.name == "changed":
            yield text_entry("(baseline)" if row.is_baseline and not row.delta else describe_change(dict(row.delta)))
        elif column.name == "seeds":
            yield text_entry(seeds_text(row))
        else:
            value = getattr(row, column.name)
            yield percent_entry(value) if column.name.endswith("_percent") else value_entry(value)


def seeds_text(row: Row) -> str:
    """`5 of 5`, or `3 of 5: 1 failed, 1 diverged`."""
    lost = ((row.n_failed, "failed"), (row.n_diverged, "diverged"), (row.n_missing, "missing"))
    words = ", ".join(f"{number} {word}" for number, word in lost if number)
    return f"{row.n_finished} of {row.n_planned}" + (f": {words}" if words else "")


def _cell_entries(cell: Cell, places: int, columns: Sequence[Column], said: bool) -> Iterable[Entry]:
    """`said`: that seeds are missing stands above the table, so readers need not be told in each of its rows."""
    quiet = said and cell.verdict == TOO_FEW
    ratio = cell.scale == "ratio"
    on_scale: Callable[[float], str] = factor if ratio else lambda v: number(v, places, sign=True)
    for column in columns:
        name = column.name
        value = _note(cell) if name == "note" else getattr(cell, name)
        if quiet and name in ("verdict", "note"):
            yield Entry(value or None, remainder(cell) if name == "note" else "")
        elif name == "verdict":
            yield text_entry(cell.said, cell.bold)
        elif value is None or isinstance(value, (str, bool)):
            yield value_entry(value)
        elif name in ("mean", "sd", "half_width"):
            yield Entry(value, number(value, places))
        elif name in ("difference", "low", "high", "detectable"):
            yield Entry(value, on_scale(value) if name != "detectable" or ratio else number(value, places))
        elif name == "relative":
            yield percent_entry(value)
        elif name.startswith("p_") or name == "p":
            yield Entry(value, f"{value:.4f}" if value >= 5e-5 else f"{value:.1e}")
        elif name == "wins":
            yield Entry(value, f"{value}/{cell.pairs}")
        else:
            yield value_entry(value)


def _note(cell: Cell) -> str:
    words = "" if cell.verdict == NOT_COMPARABLE else cell.reason
    return "; ".join(filter(None, (EXPLORATORY if cell.exploratory else "", words)))
