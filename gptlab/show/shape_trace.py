"""The trace of shapes that `probes=shapes` was asked for, of the first run of each variant: terminal and report."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

from rich import box
from rich.table import Table
from rich.text import Text

from gptlab.show.formats import count
from gptlab.show.layout import emit, make_console
from gptlab.store.study import Study
from gptlab.texts import printable

TRACE = "shapes.csv"
HEADS = ("module", "type", "shape", "bytes")
MOST_LOOKED = 100  # of variants, for their file


@dataclass(frozen=True)
class Trace:
    """One variant's shapes in the order of computation, as texts of HEADS; `path`: the file with all of them.

    Blocks after the first are counted: they are alike, unless model.layers says otherwise, and the file has them all.
    """

    label: str
    path: Path
    rows: tuple[tuple[str, str, str, str], ...]


def traces(study: Study) -> Iterator[Trace]:
    """Those of the first variants that have one. A file that cannot be read is passed over."""
    folders: dict[str, str] = {}
    for label, folder in zip(study.runs["label"], study.runs["folder"], strict=True):
        folders.setdefault(str(label), str(folder))
    for label, folder in islice(folders.items(), MOST_LOOKED):
        path = study.folder / folder / TRACE
        try:
            yield Trace(printable(label), path, tuple(_rows(path)))
        except (OSError, ValueError, KeyError, TypeError, csv.Error):
            continue


def _rows(path: Path) -> Iterator[tuple[str, str, str, str]]:
    later = 0
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if re.match(r"trf_blocks\.[1-9]\d*$", row["module"]):
                later += 1
            if re.match(r"trf_blocks\.[1-9]", row["module"]):
                continue
            if later:
                yield f"... {later} more block{'s' if later > 1 else ''}", "", "", ""
                later = 0
            texts = map(printable, (row["module"], row["type"], row["output_shape"]))
            yield (*texts, count(int(row["bytes"])))  # type: ignore[misc]


def alone(study: Study) -> bool:
    """Whether the shapes are all that there is to see."""
    return "parameters" not in study.runs and "loss" not in study.runs


def print_traces(study: Study, console_width: int | None = None, file: TextIO | None = None) -> None:
    """Print each variant's trace, and where its file is, when nothing else was measured."""
    if not alone(study):
        return
    console = make_console(console_width, file)
    for trace in traces(study):
        with console.capture() as capture:
            console.print(Text.assemble((trace.label, "bold"), ": every shape, in the order of computation"))
            console.print(_table(trace))
            console.print(Text(f"All rows: {printable(str(trace.path))}", style="dim"), soft_wrap=True)
        emit(console, capture.get())


def _table(trace: Trace) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in HEADS:
        table.add_column(heading, justify="right" if heading == "bytes" else "left", no_wrap=True)
    for row in trace.rows:
        table.add_row(*(Text(cell, style="" if row[1] else "dim") for cell in row))
    return table
