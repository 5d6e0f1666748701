"""A comparison as Markdown, CSV, JSON or HTML (and LaTeX, see `latex`): the same grids in each.

CSV and JSON carry every column and every digit; the others round to what the interval supports. Bold is only for what
is better after correction.
"""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gptlab.comparing.advice import advice
from gptlab.comparing.caption import caption, lost_runs
from gptlab.comparing.comparison import Comparison
from gptlab.show.grid import PAPER, SCREEN, Column, Grid, grids
from gptlab.show.latex import latex
from gptlab.show.said_once import views
from gptlab.show.written_values import Entry, Value
from gptlab.store.files import write_text
from gptlab.store.study import guarded
from gptlab.texts import printable

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
CSV, JSON = "comparison.csv", "comparison.json"


def export(comparison: Comparison, format: str) -> str:
    """The comparison in `format`, one of FORMATS."""
    return FORMATS[format](comparison)


def write_comparison(comparison: Comparison, folder: Path) -> list[Path]:
    """Write comparison.csv and comparison.json into `folder`; return their paths."""
    for name, format in ((CSV, "csv"), (JSON, "json")):
        write_text(folder / name, export(comparison, format))
    return [folder / CSV, folder / JSON]


def tidy_frame(comparison: Comparison) -> pd.DataFrame:
    """One line per metric and variant, as in CSV; missing numbers are NaN."""
    import pandas as pd

    return pd.DataFrame(_records(comparison))


def _markdown(comparison: Comparison) -> str:
    parts = []
    for grid, common in views(comparison, PAPER):
        head = [_md(column.header) for column in grid.columns]
        rule = [":--" if column.kind == "text" else "--:" for column in grid.columns]
        lines = [[f"**{_md(e.text)}**" if e.bold else _md(e.text) for e in line] for line in grid.lines]
        rows = "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))
        said = f"{_md(common)}\n\n" if common else ""
        parts.append(f"### {_md(grid.title)}\n\n{said}{rows}\n")
    if found := advice(comparison):
        parts = [f"{_md(printable(found[0]))} More seeds: {_md(printable(found[1]))}\n", *parts]
    lost = [f"\n- {_md(text)}" for text in lost_runs(comparison)]
    warnings = "".join([*lost, *(f"\n- Warning: {_md(printable(text))}" for text in comparison.warnings)])
    return "\n".join([*parts, _md(printable(caption(comparison)))]) + "\n" + (f"{warnings}\n" if warnings else "")


def _csv(comparison: Comparison) -> str:
    out = io.StringIO()
    records = _records(comparison)
    writer = csv.DictWriter(out, fieldnames=list(dict.fromkeys(key for r in records for key in r)), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: guarded(value) for key, value in record.items()} for record in records)
    return out.getvalue()


def _json(comparison: Comparison) -> str:
    document = {
        "schema": SCHEMA,
        "title": comparison.title,
        "question": comparison.question,
        "baseline": comparison.baseline,
        "primary_metric": comparison.primary_metric,
        "margin": comparison.margin or None,
        "keys": list(comparison.keys),
        "caption": caption(comparison),
        "warnings": list(comparison.warnings),
        "notes": list(comparison.notes),
        "failures": {row.label: list(row.failures) for row in comparison.rows if row.failures},
        "rows": [{key: _finite(value) for key, value in record.items()} for record in _records(comparison)],
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _records(comparison: Comparison) -> list[dict[str, Value]]:
    """One line per metric and variant. Budgets, if asked for, are columns of the lines of their own metric."""
    return [
        {"metric": grid.metric, **{c.name: entry.value for c, entry in zip(grid.columns, line, strict=True)}}
        for grid in grids(comparison)
        for line in grid.lines
    ]


def _finite(value: Value) -> Value:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _html(comparison: Comparison) -> str:
    parts = [_html_table(*view) for view in views(comparison, SCREEN)]
    warnings = "".join(
        f"<li>{_esc(text)}</li>" for text in (*lost_runs(comparison), *map(printable, comparison.warnings))
    )
    if found := advice(comparison):
        said, command = (_esc(printable(text)) for text in found)
        parts = [f"<p>{said} More seeds: <code>{command}</code></p>", *parts]
    parts.append(f"<p>{_esc(printable(caption(comparison)))}</p>")
    return "\n".join([*parts, *([f"<ul>{warnings}</ul>"] if warnings else [])]) + "\n"


def _html_table(grid: Grid, common: str) -> str:
    head = "".join(f'<th scope="col">{_esc(column.header)}</th>' for column in grid.columns)
    lines = []
    for line in grid.lines:
        first, *rest = (_html_cell(column, entry) for column, entry in zip(grid.columns, line, strict=True))
        lines.append(f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>')
    body = "\n".join(lines)
    title = f"{grid.title}. {common}" if common else grid.title
    return (
        f'<table class="gptlab">\n<caption>{_esc(title)}</caption>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>"
    )


def _html_cell(column: Column, entry: Entry) -> str:
    text = _esc(entry.text)
    if column.kind == "number" and entry.value is not None:
        text = f'<data value="{_esc(str(entry.value))}">{text}</data>'  # every digit, behind the rounded ones
    return f"<strong>{text}</strong>" if entry.bold else text


_MD = re.compile(r"([\\`*\[\]|~<>&#]|(?<!\w)_|_(?!\w)|(?<=^)[-+](?=\s))")


def _md(text: str) -> str:
    return _MD.sub(lambda match: f"\\{match[0]}", text)


def _esc(text: str) -> str:
    return html.escape(text)


FORMATS: dict[str, Callable[[Comparison], str]] = {
    "md": _markdown,
    "csv": _csv,
    "json": _json,
    "latex": latex,
    "html": _html,
}
