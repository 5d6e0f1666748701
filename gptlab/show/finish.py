"""The end of a study: tables and figures into its folder, the table on the screen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

from gptlab.comparing.assemble import compare, renamed
from gptlab.comparing.naming import named_study, names_of
from gptlab.errors import GptlabError
from gptlab.show.exports import write_comparison
from gptlab.show.shape_trace import print_traces
from gptlab.show.study_table import print_study
from gptlab.store.study import Study, load_study, write_tables
from gptlab.texts import printable


def finish_study(folder: Path | str, console_width: int | None = None, file: TextIO | None = None) -> Study:
    """Read the study, print its table to `file` (standard output), write its tables, figures and report.

    With several seeds the table is the comparison: a row per variant, and how sure each difference is.

    GptlabError when `folder` is no study, or takes no files; the table has been printed by then.
    """
    from gptlab.show.figures import write_figures
    from gptlab.show.report.page import write_report

    study, comparison = load_study(folder), compare([folder])
    # What is read by programs has the labels of the plan, what is looked at has names.
    seen, shown = named_study(study), renamed(comparison, names_of([study.plan], ()))
    print_study(seen, console_width, file, shown)
    print_traces(seen, console_width, file)
    try:
        write_tables(study)
        write_comparison(comparison, study.folder)
        lost: dict[str, str] = {}
        drawn = write_figures(seen, shown, lost)
        report = write_report(folder, study=seen, comparison=shown, drawn=drawn, lost=lost)
    except OSError as error:
        reason = error.strerror or str(error)
        raise GptlabError(
            f"cannot write tables, figures and the report into {folder}: {reason}. What was measured is not touched.",
            code="tables-not-written",
            folder=folder,
            reason=reason,
        ) from error
    for name, why in lost.items():
        print(f"gptlab: figure {name} could not be drawn ({printable(why)}).", file=sys.stderr)
    print(f"Report: {printable(str(report))}", file=file or sys.stdout)
    return study
