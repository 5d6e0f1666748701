"""All that was measured besides the primary metric, side by side: for readers without scripts, and for a first look."""

from __future__ import annotations

from dataclasses import dataclass

from gptlab.comparing.advice import too_few
from gptlab.comparing.comparison import TOO_FEW, Cell, Comparison
from gptlab.comparing.which_metrics import declared
from gptlab.show.report.verdict_columns import amount, difference
from gptlab.texts import printable

ROWS = 50


@dataclass(frozen=True)
class Other:
    """One cell: the difference (of a baseline its mean), the verdict's word for its looks, and the words below it."""

    text: str
    word: str
    words: str


@dataclass(frozen=True)
class Others:
    """Heads are (metric, unit); a line is a variant's label and a cell per metric."""

    heads: list[tuple[str, str]]
    lines: list[tuple[str, list[Other]]]


def others(comparison: Comparison) -> Others | None:
    """The first variants in all metrics but the primary one; None where there are no other metrics."""
    names = [name for name in comparison.metrics if name != comparison.primary_metric]
    said = bool(too_few(comparison))
    lines = [
        (printable(row.label), [_other(row.cell(name), row.baseline is None, said) for name in names])
        for row in comparison.rows[:ROWS]
    ]
    return Others([(printable(name), declared(name).unit) for name in names], lines) if names else None


def _other(cell: Cell, baseline: bool, said: bool) -> Other:
    mean = amount(cell.mean, declared(cell.metric).kind == "exact")
    if baseline:
        return Other(mean, "", "")
    if said and cell.verdict == TOO_FEW:
        return Other(difference(cell), "", "")
    words = cell.said or cell.reason
    return Other(difference(cell) or mean, cell.verdict.replace(" ", "-"), printable(words))
