"""A tuned study as it would have been with one value for all: every arm at that of its baseline."""

from __future__ import annotations

from dataclasses import replace

from gptlab.store.records import Provenance, record_of
from gptlab.store.study_sources import Source


def at_baselines(source: Source) -> Source | None:
    """The study's own runs with those of `tune.controls` in place of the arms that have such; None before the verdict.

    An arm whose best value is the baseline's has no controls, for its runs are its own.
    """
    tuning = source.plan.tuning
    if tuning is None or not tuning.chosen:
        return None
    known: dict[Provenance, Provenance] = {}
    runs = [replace(run, label=run.arm) for run in tuning.controls]
    controlled = {run.label for run in runs}
    kept = [record for record in source.records if record.run.label not in controlled]
    found = [record_of(source.folder, run, known, histories=False) for run in runs]
    records = (*kept, *found)
    return replace(source, plan=replace(source.plan, runs=tuple(r.run for r in records), tuning=None), records=records)
