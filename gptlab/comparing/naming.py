"""The names that readers see, in place of labels: `experiment.labels` of the plan, and those asked for afterwards.

Labels stay the key of everything: in files, in CSV and JSON, and wherever a variant is chosen. What is shown to a
reader (tables, figures, LaTeX, the report) is made from sources and studies that were named here first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gptlab.errors import ConfigError, unknown
from gptlab.store.study import Study
from gptlab.store.study_plan import StoredPlan, StoredTuning, check_names
from gptlab.store.study_sources import Source

Names = Mapping[str, str]  # label -> what a reader sees


def names_of(plans: Iterable[StoredPlan], asked: Names | Sequence[str]) -> dict[str, str]:
    """The plans' names and, before them, those that were asked for, as LABEL=NAME where they were typed.

    ConfigError for a label that nobody has, and for two variants under one name.
    """
    plans = list(plans)
    labels = list(dict.fromkeys(run.label for plan in plans for run in plan.runs))
    names = {label: name for plan in plans for label, name in plan.labels.items()}
    for label, name in (asked if isinstance(asked, Mapping) else _parsed(asked, labels)).items():
        if label not in labels:
            raise unknown("label", label, labels)
        names[label] = name
    check_names("label", labels, names)
    return names


def shown_names(plans: Iterable[StoredPlan]) -> dict[str, str]:
    """The plans' names; none where they would not tell the variants apart."""
    try:
        return names_of(plans, {})
    except ConfigError:
        return {}


def in_rows(typed: str | None, names: Names, by_name: bool) -> str | None:
    """A variant that was chosen by its label or by its name, as rows have it: `by_name` or not. A label goes first."""
    if typed is not None and typed in names:
        return names[typed] if by_name else typed
    return typed if by_name else next((label for label, name in names.items() if name == typed), typed)


def named_sources(sources: Sequence[Source], names: Names) -> list[Source]:
    """The same sources with the names in place of the labels."""
    return [
        replace(
            source,
            names=names,
            plan=named_plan(source.plan, names),
            records=tuple(
                replace(record, run=replace(record.run, label=names.get(record.run.label, record.run.label)))
                for record in source.records
            ),
        )
        for source in sources
    ]


def named_study(study: Study, asked: Names | Sequence[str] = ()) -> Study:
    """The same study with its names, and those asked for, in place of the labels. Not for its CSV files."""
    names = names_of([study.plan], asked)
    if not names:
        return study
    frames = {
        name: getattr(study, name).assign(label=getattr(study, name)["label"].replace(dict(names)))
        for name in ("runs", "layers", "generations", "steps")
    }
    return replace(study, plan=named_plan(study.plan, names), **frames)


def named_plan(plan: StoredPlan, names: Names) -> StoredPlan:
    """The same plan with the names in place of the labels."""
    runs = tuple(replace(run, label=names.get(run.label, run.label)) for run in plan.runs)
    twins = {
        names.get(label, label): replace(twin, of=names.get(twin.of, twin.of)) for label, twin in plan.twins.items()
    }
    tuning = _named_tuning(plan.tuning, names) if plan.tuning else None
    return replace(plan, runs=runs, twins=twins, baseline=names.get(plan.baseline, plan.baseline), tuning=tuning)


def _named_tuning(tuning: StoredTuning, names: Names) -> StoredTuning:
    trials, controls = (
        tuple(replace(run, arm=names.get(run.arm, run.arm)) for run in runs)
        for runs in (tuning.trials, tuning.controls)
    )
    values = {names.get(arm, arm): found for arm, found in tuning.values.items()}
    chosen = {names.get(arm, arm): found for arm, found in tuning.chosen.items()}
    return replace(tuning, values=values, chosen=chosen, trials=trials, controls=controls)


def _parsed(typed: Sequence[str], labels: Iterable[str]) -> dict[str, str]:
    """A label may hold equals signs itself. ConfigError for what is no pair."""
    found: dict[str, str] = {}
    known = sorted(labels, key=len, reverse=True)
    for text in typed:
        label = next((label for label in known if text.startswith(f"{label}=")), text.partition("=")[0])
        name = text.removeprefix(label).removeprefix("=")
        if not name:
            raise ConfigError(f"--label {text}: write --label LABEL=NAME.", code="label-without-name", value=text)
        if label not in known:
            raise unknown("--label", label, known)
        if label in found:
            raise ConfigError(f"--label: {label} is given twice.", code="label-given-twice", value=label)
        found[label] = name
    return found
