"""What was tried before: every change in every study of a folder, and what came out, in its primary metric.

A change is known by what it changed, not by what it was called: `model.activation: gelu_tanh -> relu` is one change,
whoever named it. Each study is compared by its own rules (baseline, margin, family of tests), as `gptlab compare` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptlab.comparing.assemble import compare_sources
from gptlab.comparing.comparison import Cell, Row
from gptlab.comparing.which_metrics import primary_of
from gptlab.errors import GptlabError
from gptlab.margin import Margin
from gptlab.store.plan_history import whole_plan
from gptlab.store.run_listing import no_collection, study_folders
from gptlab.store.study_plan import PlanEntry
from gptlab.store.study_sources import load_sources
from gptlab.store.upkeep.marks import seen_marks
from gptlab.store.where import says

Delta = Mapping[str, tuple[Any, Any]]
Filter = Callable[[str, Delta], bool]  # of a label and what it changed


@dataclass(frozen=True)
class Entry:
    """One change in one study. `cell`: of the primary metric; `when`: its last run began, UTC, ISO 8601, or empty."""

    folder: Path
    row: Row
    cell: Cell
    when: str
    archived: int  # of its runs; they count

    def to_json(self) -> dict[str, Any]:
        """The documented keys: docs/daily.md."""
        row, cell = self.row, self.cell
        return {
            "change": {key: list(pair) for key, pair in row.delta.items()},
            "variant": row.label,
            "study": row.study,
            "folder": str(self.folder),
            "baseline": row.baseline,
            "seeds": row.seeds,
            "pairs": cell.pairs,
            "parameters": row.parameters,
            "metric": cell.metric,
            "scale": cell.scale,
            "difference": cell.difference,
            "low": cell.low,
            "high": cell.high,
            "p_corrected": cell.p_corrected,
            "verdict": cell.verdict or None,
            "note": cell.note or None,
            "when": self.when or None,
            "archived": self.archived,
        }


def ledger(folder: Path, filters: Sequence[Filter] = ()) -> tuple[list[Entry], list[str]]:
    """The changes below `folder` that pass all filters, those of one kind together, and what could not be read.

    The kind of change that was tried last stands first, and of one kind the latest study.
    """
    entries: list[Entry] = []
    problems: list[str] = []
    for study in sorted(study_folders(folder)):
        try:
            if any(_passes(filters, run.label, run.delta) for run in whole_plan(study)[0].runs if _is_change(run)):
                entries += _entries(study, filters)
        except GptlabError as error:  # one study that cannot be compared costs itself
            problems.append(f"{study}: {error}")
    entries.sort(key=lambda entry: entry.when, reverse=True)
    latest: dict[str, int] = {}
    for place, entry in enumerate(entries):
        latest.setdefault(_kind(entry), place)
    return sorted(entries, key=lambda entry: latest[_kind(entry)]), problems


def changes_key(key: str, value: str | None = None) -> Filter:
    """Whether a variant changes `key`; with `value`, as it is typed, to that one."""
    return lambda label, delta: key in delta and (value is None or says(value, delta[key][1]))


def is_ablation(name: str, settings: Mapping[str, Any]) -> Filter:
    """Whether a variant is called `name`, alone or among others, or changes all that this ablation sets."""

    def test(label: str, delta: Delta) -> bool:
        same = bool(settings) and all(key in delta and delta[key][1] == new for key, new in settings.items())
        return name in label.split("+") or same

    return test


def known_keys(folder: Path) -> set[str]:
    """Every key that some study below `folder` changed."""
    found: set[str] = set()
    for study in study_folders(folder):
        try:
            found.update(key for run in whole_plan(study)[0].runs for key in run.delta)
        except GptlabError:
            continue
    return found


@no_collection()
def _entries(study: Path, filters: Sequence[Filter]) -> Iterator[Entry]:
    sources = load_sources([study])
    primary, _ = primary_of(sources)
    margin = sources[0].plan.margin
    comparison = compare_sources(
        sources, None, [primary], None, Margin.parse(margin) if margin else None, False, alone=True
    )
    for row in comparison.rows:
        if row.delta and _passes(filters, row.label, row.delta):
            started = max((run.started for run in row.runs.values()), default="")
            archived = sum(bool(seen_marks(run.folder).archived) for run in row.runs.values())
            yield Entry(study, row, row.cell(primary), started, archived)


def _is_change(run: PlanEntry) -> bool:
    return run.baseline_id != run.id


def _passes(filters: Sequence[Filter], label: str, delta: Delta) -> bool:
    return all(test(label, delta) for test in filters)


def _kind(entry: Entry) -> str:
    return repr(sorted((key, repr(new)) for key, (_, new) in entry.row.delta.items()))
