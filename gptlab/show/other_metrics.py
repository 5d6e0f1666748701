"""All that was measured besides the primary metric, in one table: a row per variant, a column per metric."""

from __future__ import annotations

from gptlab.comparing.advice import too_few
from gptlab.comparing.comparison import TOO_FEW, Cell, Comparison, Row
from gptlab.comparing.which_metrics import declared
from gptlab.show.columns import COLUMNS, Column, Entry, cell_entries, row_entries
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
    columns, found = [COLUMNS["variant"]], [row_entries(shown, "variant")]
    for name in names:
        about = declared(name)
        columns.append(Column(name, name.replace("_", " "), about.meaning))
        cells = [row.cell(name) for row in shown]
        places = decimals(cells)
        means, differences = (cell_entries(cells, column, places) for column in ("mean", "difference"))
        found.append(
            [
                _entry(row, cell, mean, difference, said)
                for row, cell, mean, difference in zip(shown, cells, means, differences, strict=True)
            ]
        )
    return Table(TITLE, "", tuple(columns), tuple(zip(*found, strict=True))) if names else None


def _entry(row: Row, cell: Cell, mean: Entry, difference: Entry, said: bool) -> Entry:
    if row.baseline is None:
        return mean
    quiet = said and cell.verdict == TOO_FEW
    return (difference if difference.text else mean)._replace(verdict="" if quiet else cell.verdict)
