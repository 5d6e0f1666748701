"""From folders to a comparison: read the runs, group them into variants, pair each with its baseline, test, correct.

The primary metric was declared before the runs, so its tests are corrected by Holm over the variants. All else is
looked at because it is there: Benjamini and Hochberg over everything else, and marked exploratory. Values at budgets of
training and times are families of their own, so that a look at them changes no other verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptlab.comparing import cautions, evidence
from gptlab.comparing import statistics as stats
from gptlab.comparing.by_budget import choose_steps, step_metrics, step_values
from gptlab.comparing.comparable import Findings, check
from gptlab.comparing.comparison import Comparison, Key, Number, Row
from gptlab.comparing.evidence import Draft, Margin
from gptlab.comparing.variants import Variant, differences, failures, group, pair
from gptlab.comparing.which_metrics import declared, on_request, primary_of, shown
from gptlab.errors import ConfigError
from gptlab.store.records import load_sources, parsed_config

COUNTED = ("parameters", "flops_forward_per_token")
LOST = {"failed": "n_failed", "diverged": "n_diverged"}


@dataclass
class _Member:
    """A variant on its way to a row."""

    variant: Variant
    base: _Member | None
    delta: dict[str, tuple[Any, Any]]
    values: dict[Key, dict[int, float]]
    findings: Findings
    drafts: dict[Key, Draft]

    @property
    def expected(self) -> int:
        """Seeds that were planned for both."""
        return len(self.variant.runs.keys() & self.base.variant.runs.keys()) if self.base else 0


def compare(
    paths: Sequence[Path | str],
    *,
    baseline: str | None = None,
    metrics: Sequence[str] = (),
    by: str | None = None,
    margin: str | float | None = None,
) -> Comparison:
    """Compare the runs in `paths`: study folders, or run folders.

    `baseline`: a variant's label, in place of the planned one. `metrics`: those to show. `by="step"` adds the values at
    several budgets of training. `margin`: a difference in the primary metric that does not matter (0.01, "1%").
    ConfigError for whatever cannot be compared, by name.
    """
    if not paths:
        raise ConfigError("compare: name a study's folder (gptlab ls lists them).")
    if by not in (None, "step"):
        raise ConfigError(f"by={by}: only step.")
    limit = None if margin is None else Margin.parse(str(margin))
    sources = load_sources(paths, histories=bool(by))
    variants, notes = group(sources)
    if not variants:
        raise ConfigError(f"compare: no runs in {', '.join(str(source.folder) for source in sources)}.")
    members = _members(variants, pair(variants, baseline, not any(s.plan.command for s in sources)))
    primary, more = primary_of(sources)
    names = shown(dict.fromkeys(key[0] for m in members for key in m.values), primary, metrics)
    for m in members:  # what is not shown weighs nothing in the correction of what is
        m.values = {key: values for key, values in m.values.items() if key[0] in names or not on_request(key[0])}
    steps: tuple[int, ...] = ()
    stepped: tuple[str, ...] = ()
    if by:
        chosen = step_metrics(metrics, primary)
        tables = {m.variant.key: step_values(list(m.variant.runs.values()), chosen) for m in members}
        steps, stepped = choose_steps(tables, chosen)
        for m in members:
            m.values |= {key: v for key, v in tables[m.variant.key].items() if key[0] in stepped and key[1] in steps}
    for member in members:
        _draft(member, primary, limit)
    _correct(members, primary, limit)
    rows = tuple(_row(member, primary) for member in members)
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
        warnings=(*more, *cautions.warnings(sources, rows, primary)),
        notes=tuple(notes),
    )


def _members(variants: Sequence[Variant], pairs: Mapping[str, str | None]) -> list[_Member]:
    """Baselines first, otherwise as planned."""
    used = {key for key in pairs.values() if key}
    ordered = sorted(variants, key=lambda v: v.key not in used)
    known = {v.key: _Member(v, None, {}, _values(v.runs.values()), Findings(), {}) for v in ordered}
    _fill_causal(known.values())
    for member in known.values():
        base = member.base = known.get(pairs[member.variant.key] or "")
        if base:
            member.delta = _delta(member.variant, base.variant)
            shared = sorted(member.variant.runs.keys() & base.variant.runs.keys())
            runs = [(member.variant.runs[seed], base.variant.runs[seed]) for seed in shared]
            member.findings = check([r for r in runs if r[0].state == r[1].state == "finished"], member.delta)
    return list(known.values())


def _fill_causal(members: Iterable[_Member]) -> None:
    """The causal loss of a model with a mask is its loss: written out where a model without one has to be compared."""
    own, causal = ("final_loss", None), ("final_causal_loss", None)
    if any(causal in member.values for member in members):
        for member in members:
            if own in member.values:
                member.values.setdefault(causal, member.values[own])


def _values(records: Any) -> dict[Key, dict[int, float]]:
    """(metric, None) -> seed -> value, of the runs that finished."""
    values: dict[Key, dict[int, float]] = {}
    for record in sorted(records, key=lambda r: r.run.seed):
        if record.state == "finished":
            for name, value in record.metrics.items():
                values.setdefault((name, None), {})[record.run.seed] = value
    return values


def _delta(own: Variant, base: Variant) -> dict[str, tuple[Any, Any]]:
    """The config keys that differ: as planned where the plan knows this pair, else from the two config files."""
    ids = {record.run.id for record in base.runs.values()}
    planned = [r.run.delta for r in own.runs.values() if r.run.baseline_id in ids and r.run.delta]
    if planned:
        return dict(planned[0])
    configs = [next(filter(None, (parsed_config(r.folder) for r in v.runs.values())), {}) for v in (base, own)]
    return differences(*configs) if all(configs) else {}


def _draft(member: _Member, primary: str, limit: Margin | None) -> None:
    """All cells of one row but for what needs the other rows."""
    for key, values in {(primary, None): {}, **member.values}.items():
        name, step = key
        about = declared(name)
        base = member.base
        if base is None:
            member.drafts[key] = evidence.summary(about, step, values)
            continue
        problem = member.findings.reason(about, step)
        others = base.values.get(key, {})
        draft = evidence.compared(about, step, values, others, member.expected, problem)
        if draft.found and key == (primary, None):
            evidence.confirm(draft, limit, stats.mean([others[seed] for seed in values if seed in others]))
        member.drafts[key] = draft


def _correct(members: Sequence[_Member], primary: str, limit: Margin | None) -> None:
    """Correct the p values within their families, and put the corrected ones into the drafts."""
    families: dict[str, list[Draft]] = {}
    for member in members:
        for (name, step), draft in member.drafts.items():
            if "p" in draft:
                timed = declared(name).kind == "timing"
                rest = "steps" if step is not None else "timing" if timed else "exploratory"
                families.setdefault("primary" if name == primary and step is None else rest, []).append(draft)
    for family, drafts in families.items():
        adjust = stats.holm if family == "primary" else stats.benjamini_hochberg
        for draft, p in zip(drafts, adjust([draft["p"] for draft in drafts]), strict=True):
            draft["p_corrected"] = p
        if family == "primary" and limit:
            for draft, p in zip(drafts, stats.holm([draft["p_equivalence"] for draft in drafts]), strict=True):
                draft["p_equivalence"] = p


def _row(member: _Member, primary: str) -> Row:
    variant, runs = member.variant, list(member.variant.runs.values())
    states = Counter(LOST.get(r.state, "n_finished" if r.state == "finished" else "n_missing") for r in runs)
    counts: dict[str, Number | None] = {}
    for name in COUNTED:
        own, base = _count(member, name), _count(member.base, name) if member.base else None
        counts[name] = own
        counts[f"{name} difference"] = None if own is None or base is None else own - base
    return Row(
        label=variant.label,
        variant=variant.key if "\0" not in variant.key else "",
        study=variant.source.plan.study or variant.source.folder.name,
        baseline=member.base.variant.label if member.base else None,
        delta=member.delta,
        n_planned=len(runs),
        n_finished=states["n_finished"],
        n_failed=states["n_failed"],
        n_diverged=states["n_diverged"],
        n_missing=states["n_missing"],
        parameters=counts["parameters"],
        parameters_difference=counts["parameters difference"],
        flops=counts["flops_forward_per_token"],
        flops_difference=counts["flops_forward_per_token difference"],
        cells={key: evidence.finish(draft, key == (primary, None)) for key, draft in member.drafts.items()},
        values=member.values,
        flags=member.findings.flags,
        failures=failures(runs),
        folders=tuple(record.folder for record in runs),
        runs=variant.runs,
    )


def _count(member: _Member, name: str) -> Number | None:
    """A count that every seed agrees on; the first one's where they do not (the cell says so)."""
    return next(iter(member.values.get((name, None), {}).values()), None)


def _common_baseline(rows: Sequence[Row]) -> str:
    named = dict.fromkeys(row.baseline for row in rows if row.baseline is not None)
    return next(iter(named)) if len(named) == 1 else ""
