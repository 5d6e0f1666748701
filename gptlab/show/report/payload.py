"""What the page's script gets: the texts of its tables, for every metric, and for every baseline of the primary one.

All numbers are computed, and written out, before: the script sorts, filters and turns pages. Columns instead of rows,
and what many rows share is written once: ten thousand runs stay well below five megabytes.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from gptlab.comparing.assemble import against
from gptlab.comparing.comparison import VERDICTS, Comparison
from gptlab.comparing.which_metrics import declared
from gptlab.show.columns import COLUMNS, OF_ROW
from gptlab.show.formats import measured
from gptlab.show.report.verdicts import Verdicts, verdicts, word_class
from gptlab.show.tables import better
from gptlab.store.records import Record
from gptlab.texts import printable

Runs = Mapping[str, Mapping[int, Record]]  # label -> seed -> run
MOST_BASELINES = 40  # variants; with more, another baseline is chosen on the command line
MOST_PAIRS = 20_000  # of runs, that are compared for all baselines: what the report's time allows
ERROR = 300  # characters of an error's first line
# Of other metrics: what a reader compares, and all that ten thousand runs leave room for.
OF_OTHERS = tuple(COLUMNS[name] for name in ("mean", "sd", "difference", "interval", "p_corrected", "verdict"))


def payload(comparison: Comparison, runs: Runs, table: Verdicts, of_runs: Sequence[str]) -> dict[str, Any]:
    """The page's data as plain JSON values. `table`: of the primary metric; `of_runs`: `run_metrics`."""
    primary, times = comparison.primary_metric, timing(comparison)
    names = dict.fromkeys([primary, *comparison.metrics, *times])
    seeds = [tuple(sorted(runs[row.label])) for row in comparison.rows]
    return {
        "primary": primary,
        "metrics": {name: {"unit": declared(name).unit, "better": better(name)} for name in names},
        "timing": times,
        "verdicts": list(map(word_class, VERDICTS)),
        "ofVariant": [column.name for column in OF_ROW],
        "labels": [printable(row.label) for row in comparison.rows],
        "planned": {
            name: _packed(table if name == primary else verdicts(comparison, name, OF_OTHERS)) for name in names
        },
        "others": _other_baselines(comparison) if has_every_baseline(comparison) else [],
        "seeds": packed(seeds),
        "states": packed([tuple(run.state for _, run in sorted(runs[row.label].items())) for row in comparison.rows]),
        "errors": _errors(comparison, runs),
        "runs": {name: packed(_measured(comparison, seeds, name)) for name in of_runs},
    }


def has_every_baseline(comparison: Comparison) -> bool:
    """Whether the page compares with any variant as the baseline."""
    variants, runs = len(comparison.rows), sum(len(row.runs) for row in comparison.rows)
    return 1 < variants <= MOST_BASELINES and variants * runs <= MOST_PAIRS and bool(comparison.sources)


def _other_baselines(comparison: Comparison) -> list[dict[str, Any]]:
    """For each variant, the primary metric's table with this variant as everybody's baseline; `order`: of its rows."""
    places = {row.label: place for place, row in enumerate(comparison.rows)}
    found = []
    for row in comparison.rows:
        other = against(comparison, row.label)
        table = _packed(verdicts(other, comparison.primary_metric))
        found.append({**table, "order": [places[own.label] for own in other.rows]})
    return found


def timing(comparison: Comparison) -> list[str]:
    """The timing metrics that were measured and not asked for: a reader may look at them, the tables leave them out."""
    found = dict.fromkeys(name for row in comparison.rows for name, step in row.values if step is None)
    return [name for name in found if declared(name).kind == "timing" and name not in comparison.metrics]


def run_metrics(comparison: Comparison) -> list[str]:
    """The metrics that the table of all runs has."""
    measured = {name for row in comparison.rows for name, step in row.values if step is None}
    return [name for name in (*comparison.metrics, *timing(comparison)) if name in measured]


def script_json(value: Any) -> str:
    """JSON that may stand inside a <script> element: nothing in it can end the element or start a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")  # a lone surrogate is no text


def packed(values: Sequence[Hashable]) -> Any:
    """Many values as `{all: value}` where they are one, as `{distinct, of}` where few differ, else as a list."""
    known: dict[Hashable, int] = {}
    of = [known.setdefault(value, len(known)) for value in values]
    if len(known) == 1:
        return {"all": values[0]}
    return {"distinct": list(known), "of": of} if 2 * len(known) < len(values) else list(values)


def _packed(table: Verdicts) -> dict[str, Any]:
    return {
        "columns": {column.name: packed(texts) for column, texts in zip(table.columns, table.texts, strict=True)},
        "words": packed(table.words),
        "bold": [place for place, bold in enumerate(table.bold) if bold],
        "small": {place: texts for place, texts in enumerate(table.small) if texts},
        "against": table.against,
    }


def _measured(comparison: Comparison, seeds: Sequence[Sequence[int]], name: str) -> list[str]:
    """The text of each run's own value, variant by variant and seed by seed."""
    write = measured(name)
    found: list[str] = []
    for row, own in zip(comparison.rows, seeds, strict=True):
        values = row.values.get((name, None), {})
        found += [write(values[seed]) if seed in values else "" for seed in own]
    return found


def _errors(comparison: Comparison, runs: Runs) -> list[list[Any]]:
    """(variant, seed, first line) of each run that has an error."""
    found = []
    for place, row in enumerate(comparison.rows):
        for seed, run in runs[row.label].items():
            if run.error:
                found.append([place, seed, printable(run.error.splitlines()[0][:ERROR])])
    return found
