"""A comparison as Markdown, HTML or LaTeX (see `latex`), the same tables in each; and as CSV or JSON, for programs.

CSV and JSON carry every column and every digit; the others round to what the interval supports. Bold is only for what
is better after correction.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gptlab.comparing.advice import advice
from gptlab.comparing.caption import caption, lost_runs
from gptlab.comparing.comparison import Comparison
from gptlab.comparing.tidy import records
from gptlab.show.columns import PAPER, SCREEN, Column, Entry
from gptlab.show.latex import latex
from gptlab.show.tables import Table, tables
from gptlab.store.csv_text import csv_text
from gptlab.store.files import write_text
from gptlab.store.json_text import json_text
from gptlab.texts import markdown, printable

SCHEMA = 1
CSV, JSON = "comparison.csv", "comparison.json"


def export(comparison: Comparison, format: str, columns: Sequence[str] = (), caption: str = "") -> str:
    """The comparison in `format`, one of FORMATS.

    `columns`: one table with these alone (see `gptlab.show.columns`), and `caption`: what it is called; not in the
    formats for programs, which have every column and no caption. ConfigError for a column that does not exist.
    """
    if format in PROGRAMS:
        return PROGRAMS[format](comparison)
    return FORMATS[format](comparison, columns, caption)


def write_comparison(comparison: Comparison, folder: Path) -> list[Path]:
    """Write comparison.csv and comparison.json into `folder`; return their paths."""
    for name, format in ((CSV, "csv"), (JSON, "json")):
        write_text(folder / name, export(comparison, format))
    return [folder / CSV, folder / JSON]


def _markdown(comparison: Comparison, columns: Sequence[str], called: str) -> str:
    parts = []
    for table in tables(comparison, PAPER, columns):
        head = [markdown(column.header) for column in table.columns]
        rule = [":--" if column.kind == "text" else "--:" for column in table.columns]
        lines = [[f"**{markdown(e.text)}**" if e.bold else markdown(e.text) for e in line] for line in table.lines]
        rows = "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))
        said = f"{markdown(table.common)}\n\n" if table.common else ""
        parts.append(f"### {markdown(printable(called or table.title))}\n\n{said}{rows}\n")
    if found := advice(comparison):
        parts = [f"{markdown(printable(found[0]))} More seeds: {_code(printable(found[1]))}\n", *parts]
    lost = [f"\n- {markdown(text)}" for text in lost_runs(comparison)]
    warnings = "".join([*lost, *(f"\n- Warning: {markdown(printable(text))}" for text in comparison.warnings)])
    return "\n".join([*parts, markdown(printable(caption(comparison)))]) + "\n" + (f"{warnings}\n" if warnings else "")


def _csv(comparison: Comparison) -> str:
    lines = [{key: _written(value) for key, value in line.items()} for line in records(comparison)]
    return csv_text(list(lines[0]) if lines else [], (line.values() for line in lines))


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
        "rows": [{key: _written(value) for key, value in line.items()} for line in records(comparison)],
    }
    return json_text(document, indent=1) + "\n"


def _written(value: Any) -> Any:
    """A value for programs: texts without anything that steers a terminal, None for no text."""
    return (printable(value) or None) if isinstance(value, str) else value


def _html(comparison: Comparison, columns: Sequence[str], called: str) -> str:
    parts = [_html_table(table, called) for table in tables(comparison, SCREEN, columns)]
    warnings = "".join(
        f"<li>{_esc(text)}</li>" for text in (*lost_runs(comparison), *map(printable, comparison.warnings))
    )
    if found := advice(comparison):
        said, command = (_esc(printable(text)) for text in found)
        parts = [f"<p>{said} More seeds: <code>{command}</code></p>", *parts]
    parts.append(f"<p>{_esc(printable(caption(comparison)))}</p>")
    return "\n".join([*parts, *([f"<ul>{warnings}</ul>"] if warnings else [])]) + "\n"


def _html_table(table: Table, called: str) -> str:
    head = "".join(f'<th scope="col">{_esc(column.header)}</th>' for column in table.columns)
    lines = []
    for line in table.lines:
        first, *rest = (_html_cell(column, entry) for column, entry in zip(table.columns, line, strict=True))
        lines.append(f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>')
    body = "\n".join(lines)
    title = printable(called) or (f"{table.title}. {table.common}" if table.common else table.title)
    return (
        f'<table class="gptlab">\n<caption>{_esc(title)}</caption>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>"
    )


def _html_cell(column: Column, entry: Entry) -> str:
    text = _esc(entry.text)
    if column.kind == "number" and entry.value is not None:
        text = f'<data value="{_esc(str(entry.value))}">{text}</data>'  # every digit, behind the rounded ones
    return f"<strong>{text}</strong>" if entry.bold else text


def _code(text: str) -> str:
    """A code span, in which nothing is escaped: what stands there can be copied and run."""
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _esc(text: str) -> str:
    return html.escape(text)


FORMATS: dict[str, Callable[[Comparison, Sequence[str], str], str]] = {"md": _markdown, "latex": latex, "html": _html}
PROGRAMS: dict[str, Callable[[Comparison], str]] = {"csv": _csv, "json": _json}
