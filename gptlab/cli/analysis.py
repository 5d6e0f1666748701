"""The end of a study whose experiment has an analysis: its findings on the screen and in the folder `analysis/`."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlab.cli.output import tell
from gptlab.config import Config
from gptlab.errors import GptlabError
from gptlab.running.execute import threads
from gptlab.store.csv_text import csv_text
from gptlab.store.files import make_folder

if TYPE_CHECKING:
    from gptlab.analyses import Findings

FOLDER = "analysis"
DIGITS = 6  # significant ones


def analyse(variants: Sequence[Config], study: Path) -> int:
    """Run the analysis of the experiment, if it has one. Exit code: 0, or 1 when it failed (the runs are kept)."""
    if variants[0].experiment.analysis is None:
        return 0
    from gptlab import analyses

    folder = study / FOLDER
    try:
        make_folder(folder)
        with threads(variants[0].threads):  # as its runs had
            findings = analyses.run(variants)
        paths = write(findings, folder)
    except GptlabError as error:
        tell(error)
        return 1
    except Exception as error:  # an analysis may be the user's own code
        (folder / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
        name = variants[0].experiment.analysis
        tell(f"analysis {name} failed: {type(error).__name__}: {error} (see {folder / 'error.txt'})")
        return 1
    print(f"Analysis {analyses.describe(variants[0].experiment)}")
    show(findings)
    print(f"Analysis: {folder} ({', '.join(path.name for path in paths)})")
    return 0


def write(findings: Findings, folder: Path) -> list[Path]:
    """summary.csv, the tables and the figures. GptlabError when the folder takes no files."""
    from gptlab.show.figures.style import drawing, save
    from gptlab.store.files import write_text

    summary = [{"quantity": name, "value": value, "meaning": meaning} for name, value, meaning in findings.summary]
    paths = []
    try:
        for stem, rows in {"summary": summary, **findings.tables}.items():
            paths.append(folder / f"{stem}.csv")
            write_text(paths[-1], _csv(rows))
        with drawing():
            for stem, draw in findings.figures.items():
                paths += save(draw(), folder, stem)
    except OSError as error:
        raise GptlabError(
            f"cannot write into {folder}: {error.strerror or error}.", code="analysis-not-written", folder=folder
        ) from error
    return paths


def show(findings: Findings) -> None:
    """The summary as a table on stdout."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("quantity", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("meaning", overflow="fold")
    for name, value, meaning in findings.summary:
        table.add_row(Text(name), Text(_cell(value)), Text(meaning))
    Console(width=None if sys.stdout.isatty() else 140, highlight=False).print(table)


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    """Counts exactly, other numbers with six digits: what is further right differs between processors."""
    columns = list(rows[0]) if rows else []
    return csv_text(columns, ([row[key] for key in columns] for row in rows), DIGITS)


def _cell(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else str(value)
