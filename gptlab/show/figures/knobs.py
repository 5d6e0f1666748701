"""What a sweep varied: the overrides of its runs that differ, as one table. Read from plan.json alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gptlab.store.names import short_id
from gptlab.store.study import Study

if TYPE_CHECKING:
    import pandas as pd

NO_KNOBS = ("seed", "label")
DEFAULT = "(default)"  # a run that leaves a key alone which others set


@dataclass(frozen=True)
class Knobs:
    """`table` has one row per run: run, label, value (of the metric), and a column of words for each of `names`."""

    names: tuple[str, ...]
    table: pd.DataFrame
    _values: dict[str, list[str]] = field(default_factory=dict, repr=False, compare=False)

    def values(self, name: str) -> list[str]:
        """The settings of a knob: numbers by size, words in the order of the sweep."""
        if name not in self._values:
            self._values[name] = self._sorted(name)
        return self._values[name]

    def _sorted(self, name: str) -> list[str]:
        found = [str(value) for value in self.table[name].unique()]
        numbers = [number(value) for value in found]
        if all(value is not None for value in numbers):
            return sorted(found, key=lambda value: number(value) or 0.0)
        return found


def knobs(study: Study, metric: str) -> Knobs:
    """The varied keys and each finished run's value of `metric`; no names when one thing alone was run."""
    overrides = {short_id(run.id): _settings(run.overrides) for run in study.plan.runs}
    keys = dict.fromkeys(key for settings in overrides.values() for key in settings)
    names = tuple(key for key in keys if len({settings.get(key, DEFAULT) for settings in overrides.values()}) > 1)
    runs = study.runs
    table = runs[["run", "label"]].assign(value=runs[metric].astype("float64") if metric in runs else float("nan"))
    for name in names:
        table[name] = [overrides.get(run, {}).get(name, DEFAULT) for run in table["run"]]
    return Knobs(names, table[table["value"].notna()].reset_index(drop=True))


def number(text: str) -> float | None:
    """The number that a setting is, if it is one."""
    try:
        return float(text)
    except ValueError:
        return None


def _settings(overrides: Sequence[str]) -> dict[str, str]:
    pairs = (text.lstrip("+").partition("=") for text in overrides)
    return {key: value for key, equals, value in pairs if equals and key not in NO_KNOBS}
