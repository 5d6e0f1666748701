"""From runs to variants: a variant is the config without its seed, and each of its seeds counts once.

What would pass for evidence and is none (a seed twice, two configs under one name) is refused by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gptlab.comparing.comparable import Findings
from gptlab.comparing.comparison import Cell, Key
from gptlab.errors import ConfigError, unknown
from gptlab.metrics import METRICS
from gptlab.store.plan_history import additions
from gptlab.store.records import Record, parsed_config
from gptlab.store.states import OVER
from gptlab.store.study_sources import Source
from gptlab.texts import printable


@dataclass
class Variant:
    """One variant and its runs, at most one for each seed; then, step by step, what it is compared with and how."""

    key: str
    label: str
    source: Source
    runs: dict[int, Record] = field(default_factory=dict)
    baselines: dict[str, None] = field(default_factory=dict)  # ids that its runs are to be compared with
    copies: int = 0  # runs that other studies hold too, with the same numbers
    added: str = ""  # seeds that came after results were there, in words
    base: Variant | None = None
    delta: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # the config keys that differ from the baseline's
    values: dict[Key, dict[int, float]] = field(default_factory=dict)  # -> seed -> value
    findings: Findings = field(default_factory=Findings)  # what stands against a comparison
    cells: dict[Key, Cell] = field(default_factory=dict)


def group(sources: Sequence[Source]) -> tuple[list[Variant], list[str]]:
    """The variants of all studies in their order, and notes on runs that are in more than one study.

    ConfigError for two configs under one label in a study, a seed that occurs twice, and one run with two results.
    """
    variants: dict[str, Variant] = {}
    for source in sources:
        keys = _keys(source)
        late = _added(source)
        for record in source.records:
            # Without its plan, a folder shows the runs of all its plans: equal labels need not be the same variant.
            key = record.variant if source.plan.problem and record.variant else keys[record.run.label]
            variant = variants.setdefault(key, Variant(key, record.run.label, source))
            variant.added = variant.added or late.get(record.run.label, "")
            if record.run.baseline_id:
                variant.baselines[record.run.baseline_id] = None
            other = variant.runs.setdefault(record.run.seed, record)
            if other is not record:
                variant.runs[record.run.seed] = _one_of(variant, other, record)
    _label_apart(list(variants.values()))
    notes = [
        f"{printable(v.label)}: {v.copies} {'runs are' if v.copies > 1 else 'run is'} in several of the studies with "
        "the same numbers, and counted once."
        for v in variants.values()
        if v.copies
    ]
    return list(variants.values()), notes


def pair(variants: Sequence[Variant], chosen: str | None, by_position: bool) -> dict[str, str | None]:
    """Key of each variant -> key of its baseline; None for a baseline, or where there is none.

    `chosen`: a label, which then is everybody's baseline. `by_position`: without a plan, the first one is.
    """
    if chosen is not None:
        base = find(variants, chosen)
        return {variant.key: None if variant is base else base.key for variant in variants}
    owners = {record.run.id: variant for variant in variants for record in variant.runs.values() if record.run.id}
    pairs: dict[str, str | None] = {}
    for variant in variants:
        bases = {owners[id_].key: owners[id_] for id_ in variant.baselines if id_ in owners}
        if len(bases) > 1:
            names = " and with ".join(printable(base.label) for base in bases.values())
            raise ConfigError(
                f"baseline: {printable(variant.label)} is compared with {names}. Name one by --baseline.",
                code="several-baselines",
                label=variant.label,
                allowed=[base.label for base in bases.values()],
            )
        pairs[variant.key] = next((key for key in bases if key != variant.key), None)
    if by_position and len(variants) > 1 and not any(pairs.values()):
        return {variant.key: variants[0].key if place else None for place, variant in enumerate(variants)}
    return pairs


def find(variants: Sequence[Variant], label: str) -> Variant:
    """The variant called `label`. ConfigError, with the closest match, when there is none or more than one."""
    for variant in variants:
        if variant.label == label:
            return variant
    meant = [variant.label for variant in variants if any(r.run.label == label for r in variant.runs.values())]
    if len(meant) > 1:
        raise ConfigError(
            f"baseline: {label!r} could be {' or '.join(map(repr, meant))}. Name one of them in full.",
            code="baseline-ambiguous",
            key="baseline",
            value=label,
            allowed=meant,
        )
    if meant:
        return find(variants, meant[0])
    raise unknown("baseline", label, [variant.label for variant in variants])


def differences(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """key -> (base's value, own value), for the keys whose values differ. `1`, `1.0` and `True` are not the same."""
    keys = [*own, *(key for key in base if key not in own)]
    return {key: (base.get(key), own.get(key)) for key in keys if _typed(base, key) != _typed(own, key)}


def planned_differences(own: Variant, base: Variant) -> dict[str, tuple[Any, Any]] | None:
    """The same of two variants that were planned against one baseline, without their config files; else None."""
    runs = [next(iter(variant.runs.values())).run for variant in (base, own)]
    if not runs[0].baseline_id or runs[0].seed != runs[1].seed or runs[0].baseline_id != runs[1].baseline_id:
        return None
    deltas = [run.delta for run in runs]
    if any(not run.delta and run.id != run.baseline_id for run in runs):
        return None
    old = {key: pair[0] for delta in deltas for key, pair in delta.items()}
    its, mine = ({**old, **{key: new for key, (_, new) in delta.items()}} for delta in deltas)
    return differences(its, mine)


def _typed(config: Mapping[str, Any], key: str) -> tuple[bool, str]:
    return key in config, repr(config.get(key))


def _keys(source: Source) -> dict[str, str]:
    """Label -> variant. A run that left no config belongs to the variant of its label."""
    found: dict[str, dict[str, Record]] = {}
    for record in source.records:
        hashes = found.setdefault(record.run.label, {})
        if record.variant:
            hashes.setdefault(record.variant, record)
    for label, hashes in found.items():
        if len(hashes) > 1 and not source.plan.problem:
            one, two = list(hashes.values())[:2]
            keys = list(differences(parsed_config(one.folder), parsed_config(two.folder)))
            said = ", ".join(keys) or "the files differ"
            raise ConfigError(
                f"{printable(label)} in {source.folder}: its runs have different configs ({said}): {one.run.folder}, "
                f"{two.run.folder}. A variant is one config: they need different labels.",
                code="label-of-two-configs",
                label=label,
                folder=source.folder,
                keys=keys,
            )
    return {label: next(iter(hashes), f"{source.folder}\0{label}") for label, hashes in found.items()}


def _added(source: Source) -> dict[str, str]:
    """Label -> which of its seeds were added after its results had been there to look at."""
    seeds: dict[str, list[int]] = {}
    for addition in additions(source.folder):
        for label in addition.variants:
            seeds.setdefault(source.names.get(label, label), []).extend(addition.seeds)
    return {
        label: f"seed{'s' if len(own) > 1 else ''} {', '.join(map(str, sorted(set(own))))} added after looking"
        for label, own in seeds.items()
    }


def _one_of(variant: Variant, one: Record, two: Record) -> Record:
    """Which of two runs of one seed counts. ConfigError unless they are copies, or one of them never finished."""
    who = f"{printable(variant.label)}: seed {one.run.seed}"
    if one.study == two.study:
        raise ConfigError(
            f"{who} occurs twice in {one.study}: {one.run.folder}, {two.run.folder}.",
            code="run-occurs-twice",
            who=who,
            study=one.study,
            folder=one.run.folder,
        )
    if one.state not in OVER or two.state not in OVER:
        return two if two.state in OVER else one
    numbers = [{k: v for k, v in r.metrics.items() if not _is_timing(k)} for r in (one, two)]
    differing = [key for key in numbers[0] if key in numbers[1] and numbers[0][key] != numbers[1][key]]
    if differing:
        key = differing[0]
        raise ConfigError(
            f"{who} has two different results: {key} is {one.metrics[key]:.8g} in {one.study} and "
            f"{two.metrics[key]:.8g} in {two.study}. Compare one of them at a time.",
            code="run-has-two-results",
            who=who,
            key=key,
            studies=[one.study, two.study],
        )
    variant.copies += 1
    return one


def _is_timing(name: str) -> bool:
    declared = METRICS.get(name)
    return declared is not None and declared.kind == "timing"


def _label_apart(variants: Sequence[Variant]) -> None:
    """Different variants of one name are called by their studies too, and by a number where that does not help."""
    for by_folder in (False, True):
        counts = Counter(variant.label for variant in variants)
        studies = Counter(label for label, _ in {(v.label, v.source.folder) for v in variants})
        for variant in variants:
            source = variant.source
            if counts[variant.label] > 1 and studies[variant.label] > 1:
                name = source.folder.name if by_folder else source.plan.study or source.folder.name
                variant.label = f"{variant.label} ({name})"
    counts = Counter(variant.label for variant in variants)
    for number, variant in enumerate(variants, 1):
        if counts[variant.label] > 1:
            variant.label = f"{variant.label} #{number}"


def failures(records: Iterable[Record]) -> tuple[str, ...]:
    """One sentence for each run that did not finish although it was started."""
    return tuple(
        f"seed {r.run.seed} {r.state}" + (f": {r.error.splitlines()[0]}" if r.error.strip() else "")
        for r in records
        if r.state not in ("finished", "planned")
    )
