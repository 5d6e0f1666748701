"""A comparison as Markdown, CSV, JSON, LaTeX or HTML: the same grids in each.

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

from gptlab.results.advice import advice, too_few
from gptlab.results.cells import printable
from gptlab.results.comparison import Comparison
from gptlab.results.grid import PAPER, SCREEN, Column, Entry, Grid, Value, grids
from gptlab.results.study import guarded
from gptlab.runs.files import write_text

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


def caption(comparison: Comparison) -> str:
    """How to read the numbers, in one paragraph of plain sentences."""
    several = len({row.baseline for row in comparison.rows if row.baseline}) > 1
    baseline = f'Baseline: "{comparison.baseline}".' if comparison.baseline else ""
    baseline = "Each variant has its own baseline." if several else baseline or "No baseline."
    seeds = comparison.seeds
    listed = f"Seeds: {', '.join(map(str, seeds[:12]))}{', ...' if len(seeds) > 12 else ''}."
    facts = [baseline, listed if seeds else "No run has finished."]
    if comparison.has_baseline and len(seeds) > 1:
        facts.append(
            "Differences are variant minus baseline (xN: ratios), paired by seed; low and high: 95 % Student-t "
            "interval (two seeds: their range). ±: half the 95 % t interval of the mean. "
            f"p: paired t test; {comparison.primary_metric} corrected by Holm over the variants, all else by "
            "Benjamini-Hochberg and exploratory. Fewer than five seeds are exploratory too."
        )
        if comparison.margin:
            facts.append(f"Equivalent: within {comparison.margin} by two one-sided tests.")
    return " ".join(facts)


def lost_runs(comparison: Comparison) -> list[str]:
    """A line for each run that was started and is no evidence: `relu: seed 1 damaged: result.json: ...`."""
    return [printable(f"{row.label}: {text}") for row in comparison.rows for text in row.failures]


def _markdown(comparison: Comparison) -> str:
    parts = []
    for grid in (grid.at(PAPER) for grid in grids(comparison)):
        head = [_md(column.header) for column in grid.columns]
        rule = [":--" if column.kind == "text" else "--:" for column in grid.columns]
        lines = [[f"**{_md(e.text)}**" if e.bold else _md(e.text) for e in line] for line in grid.lines]
        rows = "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))
        parts.append(f"### {_md(grid.title)}\n\n{rows}\n")
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
    parts = [_html_table(grid.at(SCREEN)) for grid in grids(comparison)]
    warnings = "".join(
        f"<li>{_esc(text)}</li>" for text in (*lost_runs(comparison), *map(printable, comparison.warnings))
    )
    if found := advice(comparison):
        said, command = (_esc(printable(text)) for text in found)
        parts = [f"<p>{said} More seeds: <code>{command}</code></p>", *parts]
    parts.append(f"<p>{_esc(printable(caption(comparison)))}</p>")
    return "\n".join([*parts, *([f"<ul>{warnings}</ul>"] if warnings else [])]) + "\n"


def _html_table(grid: Grid) -> str:
    head = "".join(f'<th scope="col">{_esc(column.header)}</th>' for column in grid.columns)
    lines = []
    for line in grid.lines:
        first, *rest = (_html_cell(column, entry) for column, entry in zip(grid.columns, line, strict=True))
        lines.append(f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>')
    body = "\n".join(lines)
    return (
        f'<table class="gptlab">\n<caption>{_esc(grid.title)}</caption>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>"
    )


def _html_cell(column: Column, entry: Entry) -> str:
    text = _esc(entry.text)
    if column.kind == "number" and entry.value is not None:
        text = f'<data value="{_esc(str(entry.value))}">{text}</data>'  # every digit, behind the rounded ones
    return f"<strong>{text}</strong>" if entry.bold else text


def _latex(comparison: Comparison) -> str:
    parts = ["% In the preamble: \\usepackage{booktabs,siunitx}"]
    said = printable(f"{too_few(comparison)} {caption(comparison)}".strip())
    for grid in (grid.at(PAPER) for grid in grids(comparison)):
        columns = "".join(_latex_column(grid, place) for place in range(len(grid.columns)))
        head = " & ".join(f"{{{_tex(column.header)}}}" for column in grid.columns)
        lines = [
            " & ".join(_latex_cell(column, entry) for column, entry in zip(grid.columns, line, strict=True)) + r" \\"
            for line in grid.lines
        ]
        parts += [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_tex(grid.title)}. {_tex(said)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            rf"{head} \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    return "\n".join([*parts, *(f"% Warning: {_comment(text)}" for text in comparison.warnings)]) + "\n"


def _latex_column(grid: Grid, place: int) -> str:
    """`l` for text, siunitx's `S` with room for the column's digits for numbers."""
    if grid.columns[place].kind == "text":
        return "l"
    texts = [line[place].text for line in grid.lines if _NUMBER.fullmatch(line[place].text)]
    whole = max((len(text.lstrip("+-").partition(".")[0]) for text in texts), default=1)
    part = max((len(text.partition("e")[0].partition(".")[2]) for text in texts), default=0)
    sign = "+" if any(text[0] in "+-" for text in texts) else ""
    power = "e-2" if any("e" in text for text in texts) else ""
    return f"S[table-format={sign}{whole}.{part}{power}]"


def _latex_cell(column: Column, entry: Entry) -> str:
    if column.kind == "text":
        return rf"\textbf{{{_tex(entry.text)}}}" if entry.bold else _tex(entry.text)
    if _NUMBER.fullmatch(entry.text):
        return entry.text
    if entry.text.startswith("x") and _NUMBER.fullmatch(entry.text[1:]):
        return rf"{{$\times$\num{{{entry.text[1:]}}}}}"
    return f"{{{_tex(entry.text)}}}"  # braces: siunitx leaves it alone


_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]\d+)?")
_TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': '{"}', "±": r"$\pm$", "'": "{'}", "`": "{`}", "[": "{[}", "]": "{]}",
}  # fmt: skip
_MD = re.compile(r"([\\`*\[\]|~<>&#]|(?<!\w)_|_(?!\w)|(?<=^)[-+](?=\s))")


def _tex(text: str) -> str:
    return "".join(_TEX.get(c, c) for c in text).replace("--", "-{}-")


def _comment(text: str) -> str:
    return " ".join(printable(text).split())


def _md(text: str) -> str:
    return _MD.sub(lambda match: f"\\{match[0]}", text)


def _esc(text: str) -> str:
    return html.escape(text)


FORMATS: dict[str, Callable[[Comparison], str]] = {
    "md": _markdown,
    "csv": _csv,
    "json": _json,
    "latex": _latex,
    "html": _html,
}
