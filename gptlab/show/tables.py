"""A comparison laid out in tables, as every format shows them: a table per metric, or one with the columns asked for.

A number and its text are made in `columns`; here it is chosen which of them stand where, and what is the same in every
row is said once, in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gptlab.comparing.advice import too_few
from gptlab.comparing.comparison import Comparison, Key
from gptlab.comparing.which_metrics import declared
from gptlab.errors import unknown
from gptlab.show.columns import COLUMNS, EXPLORATORY, OF_ROW, Column, Entry, cell_entries, row_entries
from gptlab.show.formats import decimals

SAID_ONCE = ("seeds", "note", "parameters", "parameters_percent", "flops_percent")  # where all rows agree
OF_THE_VARIANT = (
    "changed",
    "matched",
    "tuned",
    "trials",
    "sensitivity",
    "at_baseline",
    "seeds",
    "parameters",
    "parameters_percent",
    "flops_percent",
)  # said by the first table
# Of all metrics but the first, only what a reader compares; `--metric M` shows all of M's columns, CSV everybody's.
SHORT = ("variant", "mean", "half_width", "difference", "low", "high", "p_corrected", "verdict", "note")
AT_STEPS = ("mean", "difference", "low", "high", "verdict")


@dataclass(frozen=True)
class Table:
    """A title, columns, and a line per variant. `common`: in words, what all of its rows have in common."""

    title: str
    metric: str
    columns: tuple[Column, ...]
    lines: tuple[tuple[Entry, ...], ...]
    common: str = ""

    def only(self, names: Sequence[str]) -> Table:
        """The columns called `names`, in the table's own order."""
        kept = [place for place, column in enumerate(self.columns) if column.name in names]
        lines = tuple(tuple(line[place] for place in kept) for line in self.lines)
        return replace(self, columns=tuple(self.columns[place] for place in kept), lines=lines)

    def without(self, names: Sequence[str]) -> Table:
        """All but the columns called `names`."""
        return self.only([column.name for column in self.columns if column.name not in names])

    def has(self, name: str) -> bool:
        """Whether it has this column, of whichever metric."""
        return any(column.name.rpartition(".")[2] == name for column in self.columns)


def tables(
    comparison: Comparison, level: int, columns: Sequence[str] = (), *, primary_only: bool = False
) -> list[Table]:
    """One table per metric, those of budgets first; with `columns`, a single one that has these of every metric.

    `primary_only`: of the metrics, only the first. `level`: how much is shown of each, PAPER or SCREEN. ConfigError for
    a column that does not exist.
    """
    if columns:
        return [_asked(comparison, columns)]
    found = [_by_step(comparison, name, level) for name in comparison.step_metrics]
    for name in comparison.metrics[:1] if primary_only else comparison.metrics:
        later = len(found) > len(comparison.step_metrics)
        shown = [c for c in COLUMNS.values() if c.level <= level and (not later or c.name in SHORT)]
        found.append(_of_metrics(comparison, [(name, None)], shown, title(comparison, name)))
    return [_said_once(table, bool(number)) for number, table in enumerate(found)]


def of_metric(comparison: Comparison, name: str, columns: Sequence[Column]) -> list[list[Entry]]:
    """The entries of each of these columns for one metric, a list per column, empty ones too."""
    return _entries(comparison, [(name, None)], columns)[1]


def better(name: str) -> str:
    """`lower is better`."""
    direction = declared(name).direction
    return f"{'neither direction' if direction == 'neither' else direction} is better"


def title(comparison: Comparison, name: str) -> str:
    """`final_loss (nats/token, lower is better, primary metric)`."""
    about = declared(name)
    role = "primary metric" if name == comparison.primary_metric else EXPLORATORY
    role = "counted" if about.kind == "exact" else role
    if about.kind == "timing":  # corrected by itself; as the primary metric, as any primary metric is
        role = ", ".join((*([role] if role != EXPLORATORY else []), "timing: depends on the machine and its load"))
    direction = "" if (about.kind, about.direction) == ("exact", "neither") else better(name)
    words = ", ".join(filter(None, (about.unit, direction, role)))
    return f"{name} ({words})"


def _asked(comparison: Comparison, names: Sequence[str]) -> Table:
    for name in names:
        if name not in COLUMNS:
            raise unknown("--columns", name, COLUMNS)
    chosen = [COLUMNS[name] for name in dict.fromkeys(("variant", *names))]
    metrics = ", ".join(comparison.metrics)
    return _of_metrics(
        comparison, [(name, None) for name in comparison.metrics], chosen, f"{comparison.title}: {metrics}"
    )


def _by_step(comparison: Comparison, name: str, level: int) -> Table:
    shown = [COLUMNS[column] for column in AT_STEPS if column not in ("low", "high") or level > COLUMNS["low"].level]
    shown = [column for column in OF_ROW if column.level <= level] + shown
    words = f"{title(comparison, name)}, at steps {', '.join(map(str, comparison.steps))}"
    return _of_metrics(comparison, [(name, step) for step in comparison.steps], shown, words)


def _of_metrics(comparison: Comparison, keys: Sequence[Key], columns: Sequence[Column], title: str) -> Table:
    """The columns of the variant once, then those of each key's cell; empty columns are left out."""
    whole = _filled(comparison, keys, columns, title)
    filled = [
        column.name
        for place, column in enumerate(whole.columns)
        if column.name == "variant" or any(line[place].text for line in whole.lines)
    ]
    return whole.only(filled)


def _filled(comparison: Comparison, keys: Sequence[Key], columns: Sequence[Column], title: str) -> Table:
    heads, found = _entries(comparison, keys, columns)
    return Table(title, keys[0][0] if keys else "", tuple(heads), tuple(zip(*found, strict=True)))


def _entries(
    comparison: Comparison, keys: Sequence[Key], columns: Sequence[Column]
) -> tuple[list[Column], list[list[Entry]]]:
    """The columns of the variant once, then those of each key's cell; and the entries of each."""
    said = bool(too_few(comparison))
    of_row = {column.name for column in OF_ROW}
    heads: list[Column] = [column for column in columns if column.name in of_row]
    first = comparison.primary_metric if (comparison.primary_metric, None) in keys else keys[0][0] if keys else ""
    bold = [row.cell(first).bold and keys[0][1] is None for row in comparison.rows] if heads else []
    found = [row_entries(comparison.rows, column.name, bold) for column in heads]
    for name, step in keys:
        cells = [row.cell(name, step) for row in comparison.rows]
        places = decimals(cells)
        for column in columns:
            if column.name not in of_row:
                heads.append(_named(column, name if len({key[0] for key in keys}) > 1 else "", step))
                found.append(cell_entries(cells, column.name, places, said))
    asked = {column.name: place for place, column in enumerate(columns)}
    order = sorted(range(len(heads)), key=lambda place: asked.get(heads[place].name, place))  # of one metric, as asked
    order = order if len(keys) == 1 else list(range(len(heads)))
    return [heads[place] for place in order], [found[place] for place in order]


def _named(column: Column, metric: str, step: int | None) -> Column:
    """The column of one of several metrics, or of one budget."""
    if step is not None:
        return replace(column, name=f"{column.name}_at_{step}", header=f"{column.header} at {step}")
    if not metric:
        return column
    header = metric if column.name in ("mean", "mean_sd") else f"{metric} {column.header}"
    return replace(column, name=f"{metric}.{column.name}", header=header)


def _said_once(table: Table, later: bool) -> Table:
    """`later`: another table has said what there is to say of the variants."""
    table = table.without(OF_THE_VARIANT) if later else table
    common = _common(table)
    table = table.without(list(common))
    if later and common.get("note") == ("note", EXPLORATORY):  # its title says so
        del common["note"]
    words = [text if name == "note" else f"{header} {text}" for name, (header, text) in common.items()]
    return replace(table, common=f"In every row: {'; '.join(words)}." if words else "")


def _common(table: Table) -> dict[str, tuple[str, str]]:
    """Column -> its header and the text that all rows have; all but the baseline's, where that one has none."""
    found = {}
    for place, column in enumerate(table.columns):
        texts = [line[place].text for line in table.lines]
        texts = texts if len(texts) < 2 or texts[0] else texts[1:]
        if column.name in SAID_ONCE and texts[0] and len(set(texts)) == 1:
            found[column.name] = column.header, texts[0]
    return found
