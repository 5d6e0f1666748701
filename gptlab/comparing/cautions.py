"""What must be known before the numbers of a comparison are believed."""

from __future__ import annotations

from collections.abc import Sequence

from gptlab.comparing.comparison import BETTER, Row
from gptlab.store.study_sources import Source
from gptlab.store.upkeep.marks import seen_marks
from gptlab.texts import printable

MORE = 2.0  # percent more parameters that a winner had better be asked about
MOST_ARCHIVED = 4  # runs that a note names
MATCHED = 1.0  # percent: a twin with as many parameters as the baseline
SPENT = ("steps", "tokens", "training_flops")  # what a budget in seconds buys differs from seed to seed


def warnings(sources: Sequence[Source], rows: Sequence[Row], primary: str) -> list[str]:
    """What must be known before the numbers are believed."""
    found = [
        f"{s.folder}: plan.json could not be used ({s.plan.problem}); the runs are those found in the folder."
        for s in sources
        if s.plan.problem
    ]
    timed = any(record.provenance.seconds for source in sources for record in source.records)
    for row in rows:
        name = printable(row.label)
        percent = row.parameters_percent
        if row.cell(primary).verdict == BETTER and percent and percent > MORE and not _twin(row, rows):
            found.append(
                f"{name} is better with {percent:.1f} % more parameters: size alone may explain it. Compare a variant "
                "with as many parameters as the baseline."
            )
        found += [f"{name}: {printable(flag)}." for flag in row.flags]
        differing = [
            metric
            for (metric, step), cell in row.cells.items()
            if step is None and "not the same in every" in cell.reason and not (timed and metric in SPENT)
        ]
        if differing:
            found.append(f"{name}: {', '.join(differing[:3])} should be the same in every seed, and is not.")
    return found


def archived(sources: Sequence[Source]) -> list[str]:
    """Which runs a listing hides and this does not: what a table counts is no matter of what somebody looks at."""
    found = [
        f"{record.run.label} seed {record.run.seed}"
        for source in sources
        for record in source.records
        if seen_marks(record.folder).archived
    ]
    more = f" and {len(found) - MOST_ARCHIVED:,} more" if len(found) > MOST_ARCHIVED else ""
    return [f"Archived, and counted all the same: {', '.join(found[:MOST_ARCHIVED])}{more}."] if found else []


def _twin(row: Row, rows: Sequence[Row]) -> bool:
    """Whether another row makes the same change (and more) with the baseline's number of parameters."""
    return any(
        other is not row
        and other.baseline == row.baseline
        and all(other.delta.get(key) == value for key, value in row.delta.items())
        and other.parameters_difference is not None
        and abs(other.parameters_percent or 0) <= MATCHED
        for other in rows
    )
