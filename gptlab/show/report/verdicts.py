"""The page's verdict table: a comparison's columns for one metric, and what limits each verdict in small print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gptlab.comparing.advice import remainder, too_few
from gptlab.comparing.comparison import TOO_FEW, Cell, Comparison, Row
from gptlab.show.columns import COLUMNS, Column, Entry
from gptlab.show.tables import of_metric
from gptlab.texts import cut, printable

LONGEST = 240  # characters of a cell
COST = ("parameters", "parameters_percent", "flops", "flops_percent")  # behind the verdict, as a narrow screen has it
PAGE_COLUMNS = tuple(sorted((c for c in COLUMNS.values() if c.page), key=lambda column: column.name in COST))


@dataclass(frozen=True)
class Verdicts:
    """`texts`: a list per column. Of each row: the verdict's word, whether it is bold, the small print below it."""

    columns: tuple[Column, ...]
    texts: list[list[str]]
    words: list[str]
    bold: list[bool]
    small: list[list[str]]
    against: str

    @property
    def silent(self) -> set[str]:
        """Columns in which no row says anything."""
        said = {column.name for column, texts in zip(self.columns, self.texts, strict=True) if any(texts)}
        return {column.name for column in self.columns} - said - ({"verdict"} if any(self.small) else set())


def verdicts(comparison: Comparison, metric: str, columns: Sequence[Column] = PAGE_COLUMNS) -> Verdicts:
    """The table of `metric` with these columns."""
    entries = of_metric(comparison, metric, columns)
    cells = [row.cell(metric) for row in comparison.rows]
    said = bool(too_few(comparison))
    return Verdicts(
        tuple(columns),
        [_texts(own, column) for own, column in zip(entries, columns, strict=True)],
        [word_class(cell.verdict) for cell in cells],
        [cell.bold for cell in cells],
        [_small_print(row, cell, said) for row, cell in zip(comparison.rows, cells, strict=True)],
        _against(comparison),
    )


def _texts(entries: Sequence[Entry], column: Column) -> list[str]:
    texts = [entry.text for entry in entries]
    if column.name == "changed":  # a browser breaks a line after a hyphen, and so in the middle of ->
        texts = [text.replace(" -> ", " \N{RIGHTWARDS ARROW} ") for text in texts]
    return texts if column.kind == "number" else [cut(text, LONGEST) for text in texts]


def word_class(verdict: str) -> str:
    """How the style sheet calls a verdict."""
    return verdict.replace(" ", "-") if verdict else ""


def _small_print(row: Row, cell: Cell, said: bool) -> list[str]:
    """What limits the verdict: its reason, lost seeds, other code or hosts."""
    if row.baseline is None:
        return [printable(text) for text in row.flags]
    note = remainder(cell) if said and cell.verdict == TOO_FEW else cell.note
    if not (note or row.flags):
        return []
    return [printable(text) for text in (*note.split("; "), *row.flags) if text]


def _against(comparison: Comparison) -> str:
    """What the differences are taken from, in words."""
    bases = dict.fromkeys(row.baseline for row in comparison.rows if row.baseline is not None)
    if len(bases) == 1:
        return f"Differences to {printable(next(iter(bases)))}."
    return "Differences to each variant's own baseline." if len(comparison.rows) > 1 else ""
