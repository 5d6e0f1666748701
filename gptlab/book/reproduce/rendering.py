"""Results as a table for the terminal, Markdown, CSV or JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from gptlab.book.reproduce.claims import Claim
from gptlab.book.reproduce.verdicts import Result
from gptlab.store.csv_text import csv_text
from gptlab.store.json_text import json_text

COLORS = {"reproduced": "green", "within tolerance": "green", "differs": "yellow", "not computable here": "dim"}
COLUMNS = ("id", "group", "source", "claim", "published", "got", "difference", "tolerance", "verdict", "shows")
NARROW = 100  # columns of a terminal under which the difference is left out
PIPED = 160  # a pipe has no width


def export(results: Sequence[Result], format: str) -> str:
    """The results as `md`, `csv` or `json`."""
    if format == "md":
        return _markdown(results)
    if format == "csv":
        return csv_text(COLUMNS, (_cells(result) for result in results))
    whole = [{**_row(r), "got": r.got, "as_expected": r.as_expected, "seconds": round(r.seconds, 3)} for r in results]
    return json_text(whole, indent=1) + "\n"


def summary(results: Sequence[Result]) -> str:
    """`217 claims: 180 reproduced, ...`, with the ids of those that came out otherwise than expected."""
    counts = {word: sum(result.verdict == word for result in results) for word in COLORS}
    said = ", ".join(f"{count} {_counted(word, count)}" for word, count in counts.items() if count)
    surprises = [result.claim.id for result in results if not result.as_expected]
    end = f"NOT as expected: {', '.join(surprises)}" if surprises else "all as expected"
    return f"{len(results)} claim{'s' * (len(results) != 1)}: {said}; {end}."


def print_table(results: Sequence[Result]) -> None:
    """On stdout: a table by group, then what differs and what cannot be computed, with the reasons."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else PIPED, highlight=False)
    wide = console.width >= NARROW
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), expand=True)
    if wide:
        table.add_column("id", no_wrap=True)
    table.add_column("claim", overflow="fold", ratio=1)
    for heading in ("published", "got"):
        table.add_column(heading, overflow="fold", max_width=28 if wide else 15, justify="right")
    if wide:
        table.add_column("difference", no_wrap=True, justify="right")
    table.add_column("verdict", no_wrap=wide, max_width=None if wide else 14)
    for group, members in groupby(results, key=lambda result: result.claim.group):
        table.add_row(Text(group, style="bold"), *[""] * (len(table.columns) - 1))
        for result in members:
            name, claim = Text(result.claim.id), Text(result.claim.claim)
            cells = [name, claim] if wide else [Text.assemble((result.claim.id, "cyan"), " ", claim)]
            cells += [Text(published(result.claim)), Text(said(result.got))]
            cells += [Text(difference(result))] if wide else []
            table.add_row(*cells, Text(result.verdict, style=_style(result)))
    console.print(table)
    for word, heading in (("differs", "Where a source differs"), ("not computable here", "Not computable here")):
        reasons = Table.grid(padding=(0, 2, 0, 0))
        for result in results:
            if result.verdict == word:
                reasons.add_row(Text(result.claim.id), Text(result.shows or _plain_reason(result)))
        if reasons.row_count:
            console.print(Text(heading, style="bold"))
            console.print(reasons)
            console.print()
    console.print(Text(summary(results)))


def published(claim: Claim) -> str:
    """What was printed, with thousands set apart."""
    return f"{claim.value:,}" if _is_count(claim.value) else claim.expected


def said(value: Any) -> str:
    """A measured value in seven significant digits, counts in full and, where they stand alone, with commas."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return f"({', '.join(str(item) if _is_count(item) else said(item) for item in value)})"
    if _is_count(value):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if math.isfinite(value) and value == round(value) else f"{value:.7g}"
    return str(value)


def difference(result: Result) -> str:
    """Measured minus published; nothing between words and bounds."""
    found = result.difference
    return "" if found is None else "0" if not found else f"{found:+.2g}"


def why(result: Result) -> str:
    """The verdict in full: `differs: ...`."""
    reason = result.shows or _plain_reason(result)
    return result.verdict if result.verdict in ("reproduced", "within tolerance") else f"{result.verdict}: {reason}"


def _plain_reason(result: Result) -> str:
    return f"{said(result.got)} came out, {published(result.claim)} was published"


def _row(result: Result) -> dict[str, Any]:
    claim = result.claim
    return {
        "id": claim.id,
        "group": claim.group,
        "source": claim.source,
        "claim": claim.claim,
        "published": claim.expected,
        "got": "" if result.got is None else result.got,
        "difference": result.difference,
        "tolerance": claim.tolerance,
        "verdict": result.verdict,
        "shows": result.shows,
    }


def _cells(result: Result) -> list[Any]:
    """A row for tables: what was published is a number where it is one."""
    value = result.claim.value
    row = _row(result) | ({"published": value} if isinstance(value, int | float) else {})
    return [row[column] for column in COLUMNS]


def _markdown(results: Sequence[Result]) -> str:
    lines: list[str] = []
    for group, members in groupby(results, key=lambda result: result.claim.group):
        lines += ["", f"### {group}", "", "| id | claim | published | got | difference | verdict |"]
        lines += ["|---|---|---:|---:|---:|---|"]
        for r in members:
            cells = [r.claim.id, r.claim.claim, published(r.claim), said(r.got), difference(r), why(r)]
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|').replace('<', '&lt;') for cell in cells)} |")
    return "\n".join([*lines[1:], "", summary(results), ""])


def _style(result: Result) -> str:
    return COLORS[result.verdict] if result.as_expected else "bold red"


def _counted(word: str, count: int) -> str:
    return "differ" if word == "differs" and count != 1 else word


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
