"""Every column that a comparison can be shown with, and what stands in it: the same in all formats, and in the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from gptlab.comparing.advice import remainder
from gptlab.comparing.comparison import TOO_FEW, Cell, Row
from gptlab.comparing.which_metrics import declared
from gptlab.show import formats
from gptlab.store.study import describe_change
from gptlab.texts import printable

Value = str | int | float | bool | None
PAPER, SCREEN, ASKED = 1, 2, 3  # where a column is shown: everywhere; not in print; where it is asked for by name
EXPLORATORY = "exploratory"


@dataclass(frozen=True)
class Column:
    """`name` for the command line, `header` and `meaning` for readers. `page`: shown there at first, or in its menu."""

    name: str
    header: str
    meaning: str
    level: int = ASKED
    page: Literal["shown", "hidden", ""] = ""
    kind: Literal["text", "number"] = "number"


class Entry(NamedTuple):
    """A value and how it is written. `verdict`: the word that decides its looks."""

    value: Value
    text: str
    bold: bool = False
    verdict: str = ""


EMPTY = Entry(None, "")

OF_ROW = (
    Column("variant", "variant", "its name; the baseline is what all others are compared with", PAPER, "shown", "text"),
    Column("changed", "changed", "settings that differ from the baseline's", PAPER, "shown", "text"),
    Column("matched", "matched", "what was solved so that it costs what its baseline costs, and the residual", PAPER,
           "shown", "text"),
    Column("tuned", "tuned", "its best value of what was tuned, whether the grid brackets it, and the optimum with its "
           "95 % interval", PAPER, "shown", "text"),
    Column("trials", "trials", "how many values were tried, and what diverged of them", SCREEN, "shown", "text"),
    Column("sensitivity", "sensitivity", "mean over the values that were tried of min(loss, initial loss), less the "
           "lowest, in nats/token", PAPER, "shown"),
    Column("at_baseline", "at the baseline's", "difference and verdict where it has the baseline's value of what was "
           "tuned", PAPER, "shown", "text"),
    Column("seeds", "seeds", "those that finished, of those planned", PAPER, "shown", "text"),
    Column("parameters", "parameters", "distinct weights", SCREEN, "hidden"),
    Column("parameters_percent", "parameters %", "parameters against the baseline's", PAPER, "shown"),
    Column("flops", "FLOPs/token", "forward pass", ASKED, "hidden"),
    Column("flops_percent", "FLOPs %", "FLOPs of the forward pass against the baseline's", PAPER, "shown"),
)  # fmt: skip
OF_CELL = (
    Column("n", "n", "seeds with a finite value"),
    Column("mean", "mean", "over the seeds", PAPER, "shown"),
    Column("sd", "sd", "standard deviation over the seeds", ASKED, "shown"),
    Column("mean_sd", "mean ± sd", "mean and standard deviation over the seeds", kind="text"),
    Column("half_width", "± 95 % t", "half the 95 % t interval of the mean", PAPER, "hidden"),
    Column("difference", "difference", "to the baseline, paired by seed; x1.02 is a ratio", PAPER, "shown"),
    Column("relative", "%", "the difference in percent of the baseline", SCREEN, "shown"),
    Column("low", "low", "lower end of the difference's 95 % t interval (two seeds: their range)", PAPER),
    Column("high", "high", "upper end of the difference's 95 % t interval (two seeds: their range)", PAPER),
    Column("interval", "95 % interval", "Student's t on the paired differences", ASKED, "shown", "text"),
    Column("interval_documents", "95 % over documents", "of heldout_loss: Student's t on the differences document by "
           "document, the mean over seeds", ASKED, "hidden", "text"),
    Column("p", "p uncorrected", "of the paired t test, by itself", ASKED, "hidden"),
    Column(
        "p_corrected", "p", "of the paired t test, corrected for the number of variants (the primary metric by Holm, "
        "all others by Benjamini and Hochberg)", PAPER, "shown",
    ),
    Column("p_sign_flip", "p sign-flip", "exact test without assumptions on the distribution, from eight seeds",
           SCREEN, "hidden"),
    Column("p_equivalence", "p equivalence", "that the true difference is larger than the margin, corrected",
           SCREEN, "hidden"),
    Column("wins", "wins", "seeds in which the variant is the better one", PAPER, "hidden"),
    Column("noise_units", "noise units", "difference divided by the baseline's sd over seeds", SCREEN, "hidden"),
    Column("effect", "effect in sd", "mean difference divided by the sd of the differences", ASKED, "hidden"),
    Column("correlation", "r", "correlation of variant and baseline over the seeds: what pairing gains",
           SCREEN, "hidden"),
    Column("detectable", "detectable", "the smallest true difference that as many seeds find with 80 % power",
           SCREEN, "hidden"),
    Column("n_needed", "seeds needed", "to find the observed difference with 80 % power", SCREEN, "hidden"),
    Column("verdict", "verdict", "what this evidence supports, in words from a fixed list", PAPER, "shown", "text"),
    Column("note", "note", "what limits the verdict", PAPER, "", "text"),
)  # fmt: skip
COLUMNS = {column.name: column for column in (*OF_ROW, *OF_CELL)}


def row_entries(rows: Sequence[Row], name: str, bold: Sequence[bool] = ()) -> list[Entry]:
    """What column `name` of OF_ROW says of each variant; `bold`: those whose name is."""
    if name == "variant":
        return [_text(row.label, strong) for row, strong in zip(rows, bold or [False] * len(rows), strict=True)]
    if name in ("changed", "seeds"):
        used = {row.baseline for row in rows}
        return [_text(changed(row, row.label in used) if name == "changed" else row.seeds) for row in rows]
    if name in ("matched", "tuned", "trials"):
        return [_text(getattr(row, name) or "") for row in rows]
    if name == "at_baseline":
        return [_text(_beside(row.at_baseline) if row.at_baseline else "") for row in rows]
    if name == "sensitivity":
        return [EMPTY if (v := row.sensitivity) is None else Entry(v, formats.significant(v, 2)) for row in rows]
    write = formats.percent if name.endswith("_percent") else formats.exact
    return [EMPTY if (value := getattr(row, name)) is None else Entry(value, write(value)) for row in rows]


def _beside(cell: Cell) -> str:
    """`+0.021: no clear difference`."""
    if cell.difference is None:
        return cell.words
    if cell.scale == "ratio":
        return f"{formats.factor(cell.difference)}: {cell.words}"
    return f"{formats.significant(cell.difference, 3, sign=True)}: {cell.words}"


def cell_entries(cells: Sequence[Cell], name: str, places: int, said: bool = False) -> list[Entry]:
    """What column `name` of OF_CELL says of each variant's cell of one metric.

    `places`: decimals of its numbers (see `formats.decimals`). `said`: that seeds are missing stands above the table,
    so readers need not be told in each of its rows.
    """
    if name in _WORDS:
        needed = _NEEDS.get(name)
        if needed and not any(map(attrgetter(needed), cells)):  # ten thousand times nothing
            return [EMPTY] * len(cells)
        return [_WORDS[name](cell, places, said) for cell in cells]
    values = list(map(attrgetter(name), cells))
    if not any(value is not None for value in values):
        return [EMPTY] * len(cells)
    write = _writer(name, places, declared(cells[0].metric).counts)
    pairs = zip(values, cells, strict=True)
    return [EMPTY if value is None else Entry(value, write(value, cell)) for value, cell in pairs]


def _writer(name: str, places: int, exact: bool) -> Callable[[Any, Cell], str]:
    """How a number of a column is written."""
    if name in ("difference", "low", "high"):
        return lambda value, cell: _on_scale(value, cell, places, exact)
    if name == "wins":
        return lambda value, cell: f"{value}/{cell.pairs}"
    if name == "detectable":
        return lambda value, cell: formats.factor(value) if cell.scale == "ratio" else formats.fixed(value, places)
    if name in ("noise_units", "effect", "correlation"):
        return lambda value, cell: formats.fixed(value, 2, sign=name != "correlation")
    if name in ("mean", "sd", "half_width") and not exact:
        return lambda value, cell: formats.fixed(value, places)
    one: Callable[[Any], str] = {"relative": formats.percent, "n": formats.count}.get(
        name, formats.probability if name[:2] in ("p", "p_") else lambda value: _number(value, places, exact)
    )
    return lambda value, cell: one(value)


def changed(row: Row, used: bool) -> str:
    """`activation: gelu_tanh -> relu`; of a baseline (`used` as one) that it is one, or that it lacks one."""
    if row.delta or row.baseline is not None:
        return describe_change(row.delta)
    return "(its baseline is not among these)" if row.lacks_baseline and not used else "(baseline)"


def interval(cell: Cell, places: int) -> str:
    """`-0.020 to -0.004`; of two seeds their range, and said so."""
    if cell.low is None or cell.high is None:
        return ""
    exact = declared(cell.metric).counts
    text = f"{_on_scale(cell.low, cell, places, exact)} to {_on_scale(cell.high, cell, places, exact)}"
    return f"{text} (range)" if cell.interval == "range" else text


def _on_scale(value: float, cell: Cell, places: int, exact: bool) -> str:
    if cell.scale == "ratio":
        return formats.factor(value)
    return f"{value:+,.0f}" if exact and value and formats.is_count(value) else formats.fixed(value, places, sign=True)


def _number(value: float, places: int, exact: bool) -> str:
    return formats.count(value) if exact and formats.is_count(value) else formats.fixed(value, places)


def _seeds_needed(cell: Cell, places: int, said: bool) -> Entry:
    beyond = cell.n_needed is None and cell.p is not None
    return Entry(cell.n_needed, ">1000" if beyond else formats.count(cell.n_needed))


def _text(text: str, bold: bool = False) -> Entry:
    shown = printable(text)
    return Entry(shown, shown, bold)


def _mean_sd(cell: Cell, places: int, said: bool) -> Entry:
    if cell.mean is None:
        return EMPTY
    exact = declared(cell.metric).counts
    return _text(" ± ".join(_number(value, places, exact) for value in (cell.mean, cell.sd) if value is not None))


def _interval(cell: Cell, places: int, said: bool) -> Entry:
    return _text(interval(cell, places))


def _interval_documents(cell: Cell, places: int, said: bool) -> Entry:
    if cell.low_documents is None or cell.high_documents is None:
        return EMPTY
    low, high = (_on_scale(end, cell, places, False) for end in (cell.low_documents, cell.high_documents))
    return _text(f"{low} to {high} ({cell.documents:,})")


def _verdict(cell: Cell, places: int, said: bool) -> Entry:
    if said and cell.verdict == TOO_FEW:
        return Entry(cell.verdict, "")
    text = printable(cell.said)
    return Entry(text, text, cell.bold, cell.verdict)


def _note(cell: Cell, places: int, said: bool) -> Entry:
    return _text(remainder(cell) if said and cell.verdict == TOO_FEW else cell.note)


_WORDS = {
    "mean_sd": _mean_sd,
    "interval": _interval,
    "interval_documents": _interval_documents,
    "verdict": _verdict,
    "note": _note,
    "n_needed": _seeds_needed,
}
_NEEDS = {"interval": "low", "interval_documents": "low_documents", "n_needed": "p"}  # without it, nothing is said
