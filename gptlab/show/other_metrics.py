"""All that was measured besides the primary metric, in one table: a row per variant, a column per metric."""

from __future__ import annotations

from dataclasses import replace

from gptlab.comparing.advice import too_few
from gptlab.comparing.comparison import TOO_FEW, Cell, Comparison
from gptlab.comparing.which_metrics import declared
from gptlab.show.columns import COLUMNS, Column, Entry, cell_entry, row_entry
from gptlab.show.formats import decimals
from gptlab.show.tables import Table

TITLE = "Everything else that was measured"


def other_metrics(comparison: Comparison, rows: int | None = None) -> Table | None:
    """Each variant's difference in each other metric, with its verdict; of a baseline its mean. `rows`: the first ones.

    None where nothing else was measured.
    """
    names = [name for name in comparison.metrics if name != comparison.primary_metric]
    shown = comparison.rows[:rows]
    said = bool(too_few(comparison))
    columns, lines = [COLUMNS["variant"]], [[row_entry(row, "variant")] for row in shown]
    for name in names:
        about = declared(name)
        columns.append(Column(name, name.replace("_", " "), about.meaning))
        cells = [row.cell(name) for row in shown]
        places = decimals(cells)
        for row, line, cell in zip(shown, lines, cells, strict=True):
            line.append(_entry(cell, places, row.baseline is None, said))
    return Table(TITLE, "", tuple(columns), tuple(map(tuple, lines))) if names else None


def _entry(cell: Cell, places: int, alone: bool, said: bool) -> Entry:
    mean = cell_entry(cell, "mean", places)
    if alone or cell.difference is None:
        return replace(mean, verdict="" if alone else cell.verdict)
    return replace(
        cell_entry(cell, "difference", places), verdict="" if said and cell.verdict == TOO_FEW else cell.verdict
    )
