"""`gptlab ls`: every run on disk with its state, newest study first; filtered, sorted, in the form asked for."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO

from gptlab.errors import ConfigError, closest
from gptlab.show.formats import column, count
from gptlab.show.marked import below, beside
from gptlab.store import where
from gptlab.store.csv_text import csv_text
from gptlab.store.json_text import json_text
from gptlab.store.run_listing import DEFAULT_COLUMNS, RunRow, list_runs
from gptlab.texts import harmless_json, markdown, printable

__all__ = ["FORMATS", "RunRow", "list_runs", "print_rows", "print_runs", "select"]

FORMATS = ("table", "csv", "json", "md")
_COLOURS = {"finished": "32", "failed": "1;31", "damaged": "1;31"}  # all others: yellow


def print_runs(output_dir: Path | str, console_width: int | None = None, file: TextIO | None = None) -> None:
    """Print the listing: a line per study, a line per run, and the first line of each error."""
    print_rows(list_runs(output_dir), Path(output_dir), file=file)


def select(rows: list[RunRow], condition: str = "", sort: str = "", top: int | None = None) -> list[RunRow]:
    """The rows that fit `condition` (see `where`), sorted by the keys in `sort` (`-key`: largest first), `top` of them.

    A run that lacks a key comes last. ConfigError for a condition that cannot be read, or a key that no run has.
    """
    if condition:
        test, keys = where.parse(condition)
        _check_keys("--where", keys, rows)
        rows = [row for row in rows if test(row.value)]
    for key in reversed([word.strip() for word in sort.split(",") if word.strip()]):
        name, falling = key.removeprefix("-"), key.startswith("-")
        _check_keys("--sort", [name], rows)
        have = [row for row in rows if row.value(name) is not None]
        have.sort(key=lambda row: _rank(row.value(name)), reverse=falling)
        rows = have + [row for row in rows if row.value(name) is None]
    return rows[:top]


def print_rows(
    rows: list[RunRow],
    folder: Path,
    form: str = "table",
    columns: Sequence[str] = (),
    file: TextIO | None = None,
) -> None:
    """Print rows as a table of studies (without `columns`), or with one row per run and these columns in any form."""
    file = file or sys.stdout
    if form != "table" or columns:
        _check_keys("--columns", columns, rows)
        text = _as(form, rows, columns or DEFAULT_COLUMNS)
    elif not rows:
        text = f"No runs in {_safe(str(folder))}. (A run is a folder with result.json, in a study with plan.json.)\n"
    else:
        text = "\n".join(_studies(rows, file.isatty() and not os.environ.get("NO_COLOR"))) + "\n"
    encoding = getattr(file, "encoding", None) or "utf-8"
    file.write(text.encode(encoding, errors="backslashreplace").decode(encoding))
    file.flush()


def _check_keys(option: str, keys: Sequence[str], rows: list[RunRow]) -> None:
    """A key that no run has is a mistake in typing; one that some lack is not."""
    for key in keys:
        if not rows or any(row.value(key) is not None or key in row.known() for row in rows):
            continue
        match = closest(key, {name for row in rows[:100] for name in row.known()})
        hint = f" Did you mean {match!r}?" if match else ""
        raise ConfigError(
            f"{option}: no run has {key!r}.{hint} A key is a column of `gptlab ls`, a metric, or a key of the config.",
            code="no-run-has-key",
            key=option,
            value=key,
            suggestion=match,
        )


def _rank(value: Any) -> tuple[bool, Any]:
    """Numbers before texts, so that anything can be sorted."""
    is_number = isinstance(value, int | float)
    return (not is_number, value if is_number else str(value))


def _studies(rows: list[RunRow], coloured: bool) -> list[str]:
    """The lines of the table. Made by hand: a table library takes minutes for ten thousand rows."""
    found: list[str] = []
    for folder, group in groupby(zip(rows, _aligned(rows), strict=True), key=lambda pair: _study_of(pair[0])):
        runs = list(group)
        if found:
            found.append("")
        states = Counter(row.state for row, _ in runs)
        stale = sum(bool(row.stale) for row, _ in runs)
        summary = ", ".join(f"{number} {state}" for state, number in states.items()) + (
            f", {stale} stale" if stale else ""
        )
        found.append(f"{_paint(_safe(runs[0][0].study), '1', coloured)}  {runs[0][0].when}  {summary}")
        found.append(_paint(f"  {_safe(str(folder))}", "2", coloured))
        for row, (before, after) in runs:
            colour = _COLOURS.get(row.state, "33")
            marks = f"  {row.outcome}" if row.outcome in ("collapsed", "leaked", "did not learn") else ""
            marks += f"  {row.role}" if row.role else ""
            marks += "  stale" if row.stale else ""
            marks += beside(row)
            found.append(f"{before}{_paint(f'{row.state:<12}', colour, coloured)}{after}{marks}".rstrip())
            if row.error:
                found.append(_paint(f"    {_safe(row.error.splitlines()[0])}", "31", coloured))
            found += [_paint(line, "2", coloured) for line in below(row)]
    return found


def _study_of(row: RunRow) -> Path:
    return row.folder.parent if row.label else row.folder


def _aligned(rows: list[RunRow]) -> list[tuple[str, str]]:
    """For each row the text before its state and the text after it, aligned over the whole listing."""
    from rich.cells import cell_len

    labels = [_safe(row.label) for row in rows]
    widths = [len(label) if label.isascii() else cell_len(label) for label in labels]
    wide = min(max(widths, default=0), 32)
    seeds = ["" if row.seed is None else f"seed {row.seed}" for row in rows]
    parameters = [f"{count(row.parameters)} parameters" if row.parameters is not None else "" for row in rows]
    losses = [f"loss {text}" if text else "" for text in column([row.loss for row in rows], at_least=4)]
    finals = [
        f"trained to {text}" if text else ""
        for text in column([row.metrics.get("final_loss") for row in rows], at_least=4)
    ]
    seconds = ["" if row.seconds is None else f"{row.seconds:,.1f} s" for row in rows]
    lefts, places = [], []
    for label, width, seed in zip(labels, widths, seeds, strict=True):
        lefts.append(f"  {label}{' ' * (wide - width)}  {seed}")
        places.append(4 + max(wide, width) + len(seed))
    widest = max(places, default=0)
    rights = [_right(texts) for texts in (parameters, losses, finals, seconds)]
    return [
        (left + " " * (widest + 2 - place), "  ".join(right))
        for left, place, *right in zip(lefts, places, *rights, strict=True)
    ]


def _right(texts: list[str]) -> list[str]:
    widest = max(map(len, texts), default=0)
    return [text.rjust(widest) for text in texts]


def _as(form: str, rows: list[RunRow], columns: Sequence[str]) -> str:
    if form == "json":
        return harmless_json(json_text([{key: row.value(key) for key in columns} for row in rows], indent=1)) + "\n"
    if form == "csv":
        return csv_text(columns, ([_of_csv(row.value(key)) for key in columns] for row in rows))
    cells = [[_cell(row.value(key)) for key in columns] for row in rows]
    if form == "md":
        shown = [[markdown(_safe(cell)) for cell in line] for line in [columns, *cells]]
        return "".join(f"| {' | '.join(line)} |\n" for line in [shown[0], ["---"] * len(columns), *shown[1:]])
    if form != "table":
        raise ConfigError(f"--format: {form!r} is not one of {', '.join(FORMATS)}.", code="format-unknown", form=form)
    shown = [list(columns), *([_safe(cell) for cell in line] for line in cells)]
    widths = [max(len(line[place]) for line in shown) for place in range(len(columns))]
    return "".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() + "\n" for line in shown)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | list | dict):
        return json.dumps(value, ensure_ascii=False)
    return repr(value) if isinstance(value, float) else " ".join(str(value).split("\n"))


def _of_csv(value: Any) -> Any:
    """Texts whole, with their line ends; true, false, lists and nodes as JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | list | dict) else value


def _safe(text: str) -> str:
    return text if text.isprintable() and "\\" not in text else printable(text)


def _paint(text: str, colour: str, coloured: bool) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if coloured else text
