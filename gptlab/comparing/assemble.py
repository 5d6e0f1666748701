"""From folders to a comparison: read the runs, group them into variants, pair each with its baseline, test, correct."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gptlab.comparing import cautions, evidence, families, lost_seeds
from gptlab.comparing.by_budget import choose_steps, step_metrics, step_values
from gptlab.comparing.comparable import check
from gptlab.comparing.comparison import Cell, Comparison, Key, Number, Row, replace
from gptlab.comparing.documents import METRIC, over_documents
from gptlab.comparing.naming import in_rows, named_sources, names_of, shown_names
from gptlab.comparing.pooled import pool_noise
from gptlab.comparing.rates.arms import TunedArm, arms_of
from gptlab.comparing.rates.controls import at_baselines
from gptlab.comparing.variants import Variant, differences, failures, group, pair, planned_differences
from gptlab.comparing.which_metrics import declared, on_request, primary_of, shown
from gptlab.errors import ConfigError, unknown
from gptlab.margin import Margin
from gptlab.store.plan_history import whole_plan
from gptlab.store.records import Record, parsed_config
from gptlab.store.run_listing import no_collection
from gptlab.store.states import OVER
from gptlab.store.study_sources import Source, load_sources
from gptlab.twin import Twin

COUNTED = ("parameters", "flops_forward_per_token")
LOST = {"finished": "n_finished", "failed": "n_failed", "diverged": "n_diverged"}


@no_collection()
def compare(
    paths: Sequence[Path | str],
    *,
    baseline: str | None = None,
    metrics: Sequence[str] = (),
    by: str | None = None,
    margin: str | float | None = None,
    pooled: bool = False,
    labels: Mapping[str, str] | Sequence[str] | None = None,
) -> Comparison:
    """Compare the runs in `paths`: study folders, or run folders.

    `baseline`: a variant's label or its name, in place of the planned one. `metrics`: those to show. `by="step"` adds
    the values at several budgets of training. `margin`: a difference in the primary metric that does not matter (0.01,
    "1%"); the planned one by default.
    `pooled`: one spread for all arms in the primary metric, and Dunnett's test. `labels`: variants get the names of
    `experiment.labels`, and these (label -> name, or LABEL=NAME texts); without it, rows have the labels of the files.
    ConfigError for whatever cannot be compared, by name.
    """
    if not paths:
        raise ConfigError("compare: name a study's folder (gptlab ls lists them).", code="compare-names-nothing")
    if by not in (None, "step"):
        raise unknown("by", by, ["step"])
    limit = None if margin is None else Margin.parse(str(margin))
    sources = load_sources(paths, histories=bool(by))
    planned = {source.plan.margin for source in sources}
    if limit is None and len(planned) == 1 and (text := next(iter(planned))):
        limit = Margin.parse(text)
    names = names_of((source.plan for source in sources), labels) if labels is not None else {}
    if labels is not None:
        sources = named_sources(sources, names)
    known = names or shown_names(source.plan for source in sources)
    try:
        return compare_sources(sources, in_rows(baseline, known, bool(names)), metrics, by, limit, pooled)
    except ConfigError as error:
        if (error.code, error.key) != ("unknown-name", "baseline"):
            raise
        raise unknown("baseline", str(baseline), {*error.facts["allowed"], *known, *known.values()}) from None


@no_collection()
def renamed(comparison: Comparison, names: Mapping[str, str]) -> Comparison:
    """What `compare` made of the same runs without choices of its own, with the names in place of the labels."""
    if not names:
        return comparison
    limit = Margin.parse(comparison.margin) if comparison.margin else None
    return compare_sources(named_sources(comparison.sources, names), None, (), None, limit, bool(comparison.pooled))


@no_collection()
def against(comparison: Comparison, baseline: str) -> Comparison:
    """The same runs with the variant called `baseline` as everybody's baseline, in the primary metric alone."""
    limit = Margin.parse(comparison.margin) if comparison.margin else None
    primary, pooled = comparison.primary_metric, bool(comparison.pooled)
    return compare_sources(comparison.sources, baseline, [primary], None, limit, pooled, alone=True)


def compare_sources(
    sources: Sequence[Source],
    baseline: str | None,
    metrics: Sequence[str],
    by: str | None,
    limit: Margin | None,
    pooled: bool,
    *,
    alone: bool = False,
) -> Comparison:
    """See `compare`; the runs have been read. `alone`: nothing but `metrics` is looked at."""
    variants, notes = group(sources)
    if not variants:
        raise ConfigError(
            f"compare: no runs in {', '.join(str(source.folder) for source in sources)}.", code="compare-no-runs"
        )
    variants = _paired(variants, baseline, by_position=not any(s.plan.command for s in sources))
    primary, more = primary_of(sources)
    measured = dict.fromkeys(key[0] for v in variants for key in v.values)
    names = tuple(metrics) if alone else shown(measured, primary, metrics)
    for v in variants:  # what is not shown weighs nothing in the correction of what is
        v.values = {
            key: values
            for key, values in v.values.items()
            if key[0] in names or (key[0] in COUNTED if alone else not on_request(key[0]))
        }
    steps: tuple[int, ...] = ()
    stepped: tuple[str, ...] = ()
    if by:
        chosen = step_metrics(metrics, primary)
        tables = {v.key: step_values(list(v.runs.values()), chosen) for v in variants}
        steps, stepped = choose_steps(tables, chosen)
        for v in variants:
            v.values |= {key: found for key, found in tables[v.key].items() if key[0] in stepped and key[1] in steps}
    for variant in variants:
        _fill_cells(variant, primary, limit)
    assumed = pool_noise(variants, primary, limit) if pooled else ""
    families.correct(variants, primary)
    rows = tuple(_row(variant) for variant in variants)
    if not alone:
        rows = tuple(_tuned(rows, variants, sources, None if baseline else (primary, limit, pooled)))
    return Comparison(
        folders=tuple(dict.fromkeys(source.folder for source in sources)),
        title=", ".join(dict.fromkeys(s.plan.study or s.folder.name for s in sources)),
        question=" ".join(dict.fromkeys(s.plan.question for s in sources if s.plan.question)),
        baseline=_common_baseline(rows),
        primary_metric=primary,
        metrics=names,
        steps=steps,
        step_metrics=stepped,
        rows=rows,
        keys=tuple(dict.fromkeys(key for row in rows for key in row.delta)),
        command=sources[0].plan.command if len(sources) == 1 else (),
        margin=limit.text if limit else "",
        pooled=assumed,
        warnings=(*more, *cautions.warnings(sources, rows, primary)),
        notes=(*notes, *([] if alone else (*_left_out(sources), *cautions.archived(sources)))),
        sources=tuple(sources),
    )


def _left_out(sources: Sequence[Source]) -> list[str]:
    """What is in a study's folder and in no table of it."""
    found = [(source.folder, whole_plan(source.folder)[1]) for source in sources if source.plan.command]
    return [
        f"Left out, as the latest plan of {folder} lacks these variants: {words}." for folder, words in found if words
    ]


def _paired(variants: Sequence[Variant], baseline: str | None, by_position: bool) -> list[Variant]:
    """Each with its values, its baseline and what stands against the two; baselines first, otherwise as planned."""
    pairs = pair(variants, baseline, by_position)
    used = {key for key in pairs.values() if key}
    ordered = sorted(variants, key=lambda v: v.key not in used)
    known = {v.key: v for v in ordered}
    for variant in ordered:
        variant.values = _values(variant.runs.values())
        base = variant.base = known.get(pairs[variant.key] or "")
        if base:
            variant.delta = _delta(variant, base)
            shared = sorted(variant.runs.keys() & base.runs.keys())
            runs = [(variant.runs[seed], base.runs[seed]) for seed in shared]
            variant.findings = check([r for r in runs if r[0].state in OVER and r[1].state in OVER], variant.delta)
    _fill_causal(ordered)
    return ordered


def _fill_causal(variants: Sequence[Variant]) -> None:
    """The causal loss of a model with a mask is its loss: written out where a model without one has to be compared."""
    own, causal = ("final_loss", None), ("final_causal_loss", None)
    if any(causal in variant.values for variant in variants):
        for variant in variants:
            if own in variant.values and causal not in variant.values and _config(variant).get("model.causal") is True:
                variant.values[causal] = variant.values[own]


def _values(records: Iterable[Record]) -> dict[Key, dict[int, float]]:
    """(metric, None) -> seed -> value, of the runs that have ended, well or not: a finite number always counts."""
    values: dict[Key, dict[int, float]] = {}
    for record in sorted(records, key=lambda r: r.run.seed):
        if record.state in OVER:
            for name, value in record.metrics.items():
                values.setdefault((name, None), {})[record.run.seed] = value
    return values


def _delta(own: Variant, base: Variant) -> dict[str, tuple[Any, Any]]:
    """The config keys that differ: as planned where the plan knows this pair, else from the two config files."""
    ids = {record.run.id for record in base.runs.values()}
    planned = [r.run.delta for r in own.runs.values() if r.run.baseline_id in ids and r.run.delta]
    if planned:
        return dict(planned[0])
    if (known := planned_differences(own, base)) is not None:
        return known
    configs = [_config(base), _config(own)]
    return differences(*configs) if all(configs) else {}


def _config(variant: Variant) -> dict[str, Any]:
    """The variant's config, from the first of its runs that has one; empty where none has."""
    return next(filter(None, (parsed_config(record.folder) for record in variant.runs.values())), {})


def _fill_cells(variant: Variant, primary: str, limit: Margin | None) -> None:
    """All cells of one row but for what needs the other rows."""
    base = variant.base
    expected = len(variant.runs.keys() & base.runs.keys()) if base else 0
    for key, values in {(primary, None): {}, **variant.values}.items():
        name, step = key
        about = declared(name)
        if base is None:
            variant.cells[key] = evidence.summary(about, step, values)
            continue
        others = base.values.get(key, {})
        first = key == (primary, None)
        variant.cells[key] = evidence.compared(
            about,
            step,
            values,
            others,
            expected=expected,
            lost=lost_seeds.of_pairs(variant.runs, base.runs, values.keys() & others.keys(), name),
            problem=variant.findings.reason(about, step),
            primary=first,
            margin=limit if first else None,
        )
        if (
            name == METRIC
            and variant.cells[key].difference is not None
            and (found := over_documents(variant.runs, base.runs, values.keys() & others.keys()))
        ):
            variant.cells[key] = replace(
                variant.cells[key], documents=found.n, low_documents=found.low, high_documents=found.high
            )
        if variant.added:
            variant.cells[key] = replace(variant.cells[key], marked=True)


def _row(variant: Variant) -> Row:
    base, runs = variant.base, list(variant.runs.values())
    states = Counter(LOST.get(run.state, "n_missing") for run in runs)
    counts: dict[str, Number | None] = {}
    for name in COUNTED:
        own, its = _count(variant, name), _count(base, name) if base else None
        counts[name] = own
        counts[f"{name} difference"] = None if own is None or its is None else own - its
    return Row(
        label=variant.label,
        variant=variant.key if "\0" not in variant.key else "",
        study=variant.source.plan.study or variant.source.folder.name,
        baseline=base.label if base else None,
        delta=variant.delta,
        n_planned=len(runs),
        n_finished=states["n_finished"],
        n_failed=states["n_failed"],
        n_diverged=states["n_diverged"],
        n_missing=states["n_missing"],
        parameters=counts["parameters"],
        parameters_difference=counts["parameters difference"],
        flops=counts["flops_forward_per_token"],
        flops_difference=counts["flops_forward_per_token difference"],
        cells=variant.cells,
        values=variant.values,
        flags=(*variant.findings.flags, *([variant.added] if variant.added else [])),
        failures=failures(runs),
        folders=tuple(record.folder for record in runs),
        runs=variant.runs,
        twin=_twin(variant),
    )


def _tuned(
    rows: Sequence[Row],
    variants: Sequence[Variant],
    sources: Sequence[Source],
    beside: tuple[str, Margin | None, bool] | None,
) -> Iterable[Row]:
    """The rows with what the trials of tuned studies say and, where each has its planned baseline, with the verdict at
    that baseline's value. `beside`: what such a comparison needs."""
    arms: dict[tuple[Path, str], TunedArm] = {}
    cells: dict[tuple[Path, str], Cell] = {}
    for source in sources:
        found = arms_of(source.plan.tuning, source.folder) if source.plan.tuning else {}
        arms |= {(source.folder, label): arm for label, arm in found.items()}
        one = at_baselines(source) if beside else None
        if one and beside:
            primary, limit, pooled = beside
            other = compare_sources([one], None, [primary], None, limit, pooled, alone=True)
            cells |= {(source.folder, row.label): row.cell(primary) for row in other.rows if row.baseline}
    for row, variant in zip(rows, variants, strict=True):
        labels = [(variant.source.folder, record.run.label) for record in variant.runs.values()][:1]
        rates = next((arms[label] for label in labels if label in arms), None)
        at_baseline = next((cells[label] for label in labels if label in cells), None)
        yield dataclasses.replace(row, rates=rates, at_baseline=at_baseline) if rates else row


def _twin(variant: Variant) -> Twin | None:
    """As its plan records it, under the label that it has there; nothing against another baseline than that."""
    labels = {record.run.label for record in variant.runs.values()}
    planned = {record.run.baseline_id for record in variant.runs.values()}
    base = {record.run.id for record in variant.base.runs.values()} if variant.base else set()
    found = [twin for label, twin in variant.source.plan.twins.items() if label in labels]
    return found[0] if found and planned & base else None


def _count(variant: Variant, name: str) -> Number | None:
    """A count that every seed agrees on; the first one's where they do not (the cell says so)."""
    return next(iter(variant.values.get((name, None), {}).values()), None)


def _common_baseline(rows: Sequence[Row]) -> str:
    named = dict.fromkeys(row.baseline for row in rows if row.baseline is not None)
    return next(iter(named)) if len(named) == 1 else ""
