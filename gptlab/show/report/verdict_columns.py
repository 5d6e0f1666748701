"""The verdict table's columns: what each says of a row, as text.

assets/page.js has the same columns and the same formats, for the tables that it draws itself; a test compares the two,
cell by cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gptlab.comparing.advice import remainder, too_few
from gptlab.comparing.comparison import NOT_COMPARABLE, TOO_FEW, Cell, Comparison, Row
from gptlab.comparing.which_metrics import declared
from gptlab.show.report.payload import setting_word
from gptlab.texts import printable

CELL_CHARACTERS = 240  # of a setting, in the table


@dataclass(frozen=True)
class Column:
    """`shown`: from the start. `meaning`: one line, for the legend and the pointer."""

    key: str
    header: str
    meaning: str
    text: Callable[[Row, Cell], str]
    shown: bool = True
    words: bool = False  # left-aligned


def number(value: float | None, digits: int = 5) -> str:
    """A number with `digits` significant digits: 3.6021, 0.012346, 1.2346e+9."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return "\N{INFINITY}" if value > 0 else "-\N{INFINITY}"
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1e7 or size < 1e-4:
        return exponent(value, digits - 1)
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(size)))}f}"


def exponent(value: float, places: int) -> str:
    """1.23e+9, with no more digits in the exponent than it needs."""
    mantissa, power = f"{value:.{places}e}".split("e")
    return f"{mantissa}e{power[0]}{int(power[1:])}"


def amount(value: float | None, exact: bool) -> str:
    """A mean; of what is counted, a whole number with commas."""
    if value is not None and exact and float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return number(value)


def signed(value: float | None, digits: int = 3) -> str:
    """A number with its sign: +0.0123."""
    return "" if value is None else ("+" if value > 0 else "") + number(value, digits)


def percent(value: float | None) -> str:
    """+0.35%, `=` for nothing at all."""
    return "" if value is None else "=" if value == 0 else f"{signed(value)}%"


def probability(value: float | None) -> str:
    """0.34, 0.012, <0.0001."""
    if value is None:
        return ""
    return "<0.0001" if value < 1e-4 else f"{value:.{2 if value >= 0.1 else 3 if value >= 0.01 else 4}f}"


def places(cell: Cell) -> int | None:
    """Decimal places that the width of the interval deserves; None where there is none or the numbers need powers."""
    if cell.low is None or cell.high is None or not cell.low < cell.high < math.inf:
        return None
    wanted = 1 - math.floor(math.log10(cell.high - cell.low))
    return max(0, wanted) if wanted <= 8 and max(abs(cell.low), abs(cell.high)) < 1e7 else None


def difference(cell: Cell) -> str:
    """The difference, or the ratio as x1.02, with as many places as its interval."""
    if cell.difference is None:
        return ""
    exact = declared(cell.metric).kind == "exact"
    if exact:
        sign = "+" if cell.difference > 0 else ""
        return "=" if cell.difference == 0 else sign + amount(cell.difference, exact=True)
    return _placed(cell.difference, cell, places(cell))


def interval(cell: Cell) -> str:
    """`-0.020 to -0.004`; of two seeds their range, and said so."""
    if cell.low is None or cell.high is None:
        return ""
    found = places(cell)
    text = f"{_placed(cell.low, cell, found)} to {_placed(cell.high, cell, found)}"
    return f"{text} (range)" if cell.interval == "range" else text


def _placed(value: float, cell: Cell, found: int | None) -> str:
    if cell.scale == "ratio":
        return "x" + (number(value, 3) if found is None else f"{value:.{found}f}")
    return signed(value) if found is None else ("+" if value > 0 else "") + f"{value:.{found}f}"


def runs(row: Row) -> str:
    """`5 of 5`, `4 of 5, 1 diverged`."""
    lost = ((row.n_failed, "failed"), (row.n_diverged, "diverged"), (row.n_missing, "missing"))
    return ", ".join([f"{row.n_finished} of {row.n_planned}", *(f"{number} {what}" for number, what in lost if number)])


def change(row: Row) -> str:
    """`activation: gelu_tanh -> relu`; nothing for a baseline."""
    return "; ".join(
        f"{printable(key).removeprefix('model.')}: {shortened(setting_word(old))} -> {shortened(setting_word(new))}"
        for key, (old, new) in row.delta.items()
    )


def shortened(text: str) -> str:
    """A long setting, cut."""
    return text if len(text) <= CELL_CHARACTERS else text[: CELL_CHARACTERS - 1] + "\N{HORIZONTAL ELLIPSIS}"


def verdict(row: Row, cell: Cell) -> str:
    """The verdict in words; of a baseline, that it is one."""
    return "baseline" if row.baseline is None else cell.words


def remarks(row: Row, cell: Cell) -> list[str]:
    """What limits the verdict: its reason, lost seeds, other code or hosts."""
    reason = remainder(cell) if row.baseline is not None and cell.verdict and cell.verdict != NOT_COMPARABLE else ""
    return [printable(text) for text in (*([reason] if reason else []), *row.flags)]


def unsaid(comparison: Comparison) -> set[str]:
    """Columns that have nothing to say for want of seeds: what that means stands above the table."""
    if not too_few(comparison):
        return set()
    pairs = [(row, row.cell(comparison.primary_metric)) for row in comparison.rows]
    found = {column.key for column in COLUMNS if column.shown and not any(column.text(*pair) for pair in pairs)}
    compared = [pair for pair in pairs if pair[0].baseline is not None]
    silent = all(cell.verdict == TOO_FEW and not remarks(row, cell) for row, cell in compared)
    return found | ({"verdict"} if silent else set())


def wins(cell: Cell) -> str:
    """`4 of 5`: pairs in which the variant is the better one."""
    return "" if cell.wins is None else f"{cell.wins} of {cell.pairs}"


def detectable(cell: Cell) -> str:
    """The smallest effect, as a difference or a ratio."""
    return "" if cell.detectable is None else ("x" if cell.scale == "ratio" else "") + number(cell.detectable, 3)


def needed(cell: Cell) -> str:
    """Seeds; more than the search goes for a difference that was tested."""
    return "" if cell.p is None else ">1000" if cell.n_needed is None else str(cell.n_needed)


COLUMNS = (
    Column("label", "variant", "its name; the baseline is what all others are compared with",
           lambda r, c: printable(r.label), words=True),
    Column("change", "what changed", "settings that differ from the baseline's", lambda r, c: change(r), words=True),
    Column("runs", "runs", "seeds that finished, of those planned", lambda r, c: runs(r), words=True),
    Column("mean", "mean", "over the seeds", lambda r, c: amount(c.mean, declared(c.metric).kind == "exact")),
    Column("sd", "sd", "standard deviation over the seeds", lambda r, c: number(c.sd, 3)),
    Column(
        "difference", "difference", "to the baseline, paired by seed; x1.02 is a ratio", lambda r, c: difference(c)
    ),
    Column("interval", "95% interval", "Student's t on the paired differences", lambda r, c: interval(c)),
    Column("relative", "%", "the difference in percent of the baseline", lambda r, c: percent(c.relative)),
    Column(
        "p_corrected", "p", "of the paired t test, corrected for the number of variants (the primary metric by Holm, "
        "all others by Benjamini and Hochberg)", lambda r, c: probability(c.p_corrected),
    ),
    Column("verdict", "verdict", "what this evidence supports, in words from a fixed list", verdict, words=True),
    Column("parameters", "parameters", "against the baseline's", lambda r, c: percent(r.parameters_percent)),
    Column("flops", "FLOPs", "forward pass per token, against the baseline's", lambda r, c: percent(r.flops_percent)),
    Column("half_width", "\N{PLUS-MINUS SIGN}", "half the 95% t interval of the mean",
           lambda r, c: number(c.half_width, 3), shown=False),
    Column("p", "p alone", "not corrected", lambda r, c: probability(c.p), shown=False),
    Column("p_sign_flip", "p sign-flip", "exact test without any assumption on the distribution, from eight seeds",
           lambda r, c: probability(c.p_sign_flip), shown=False),
    Column("p_equivalence", "p equivalence", "that the true difference is larger than the margin, corrected",
           lambda r, c: probability(c.p_equivalence), shown=False),
    Column("correlation", "correlation", "of variant and baseline over the seeds: what pairing gains",
           lambda r, c: number(c.correlation, 2), shown=False),
    Column("wins", "wins", "seeds in which the variant is the better one", lambda r, c: wins(c), shown=False),
    Column("noise_units", "in seed noise", "difference divided by the baseline's sd over seeds",
           lambda r, c: signed(c.noise_units), shown=False),
    Column("effect", "effect size", "mean difference divided by the sd of the differences",
           lambda r, c: signed(c.effect), shown=False),
    Column("detectable", "detectable", "the smallest true difference that as many seeds find with 80% power",
           lambda r, c: detectable(c), shown=False),
    Column("n_needed", "seeds needed", "to find the observed difference with 80% power",
           lambda r, c: needed(c), shown=False),
)  # fmt: skip
