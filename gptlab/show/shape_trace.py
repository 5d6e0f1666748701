"""The trace of shapes in the terminal: what `probes=shapes` was asked for, of the first run of each variant."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import TextIO

from rich import box
from rich.table import Table
from rich.text import Text

from gptlab.show.layout import emit, make_console
from gptlab.store.study import Study
from gptlab.texts import printable

TRACE = "shapes.csv"


def print_traces(study: Study, console_width: int | None = None, file: TextIO | None = None) -> None:
    """Print each variant's trace, and where its file is, when nothing else was measured.

    Blocks after the first are counted: they are alike, unless model.layers says otherwise, and the file has them all.
    """
    if "parameters" in study.runs or "loss" in study.runs:
        return
    console = make_console(console_width, file)
    for label, folder in dict(zip(study.runs["label"], study.runs["folder"], strict=True)).items():
        path = study.folder / str(folder) / TRACE
        if not path.is_file():
            continue
        with console.capture() as capture:
            console.print(Text.assemble((printable(str(label)), "bold"), ": every shape, in the order of computation"))
            console.print(_table(path))
            console.print(Text(f"All rows: {printable(str(path))}", style="dim"), soft_wrap=True)
        emit(console, capture.get())


def _table(path: Path) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("module", "type", "shape", "bytes"):
        table.add_column(heading, justify="right" if heading == "bytes" else "left", no_wrap=True)
    later = 0
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if re.match(r"trf_blocks\.[1-9]\d*$", row["module"]):
                later += 1
            if re.match(r"trf_blocks\.[1-9]", row["module"]):
                continue
            if later:
                table.add_row(Text(f"... {later} more blocks", style="dim"), "", "", "")
                later = 0
            cells = (row["module"], row["type"], row["output_shape"], f"{int(row['bytes']):,}")
            table.add_row(*(Text(printable(cell)) for cell in cells))
    return table
