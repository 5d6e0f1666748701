"""From overrides to the list of runs, all composed and checked before the first one starts.

An experiment's own sweep runs when the experiment is named, and the command line replaces it key by key. Every ablation
has its baseline in the plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gptlab.config import Config, MatchConfig, TuneConfig
from gptlab.declare.composer import Composer, Job
from gptlab.declare.overrides import label, settings, slug
from gptlab.errors import wrong_value
from gptlab.identity import identity, variant
from gptlab.planning import matching as twins
from gptlab.planning import rules, sweep, tune_keys
from gptlab.planning.baselines import pair
from gptlab.planning.changed import changed
from gptlab.planning.label_names import names_of
from gptlab.planning.members import compose_members, named_run, say_skipped
from gptlab.planning.tuning import Tuning, first_stage
from gptlab.store.csv_text import is_missing
from gptlab.twin import Twin

SCHEMA = 1


@dataclass(frozen=True)
class PlannedRun:
    """One variant with one seed.

    `baseline_id` is the run that it is compared with: its own id for a baseline, None where nothing is compared.
    """

    id: str
    label: str
    seed: int
    folder: str
    overrides: tuple[str, ...]
    baseline_id: str | None
    delta: dict[str, tuple[Any, Any]]
    config: Config
    twin: Twin | None = None  # what was solved for it, where it is matched
    arm: str = ""  # label of the variant that it is a trial or a control of (`Tuning`); empty for what decides

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "label": self.label,
            "seed": self.seed,
            "variant": variant(self.config)[:12],  # the id without its seed: which runs one table covers
            "folder": self.folder,
            "overrides": list(self.overrides),
            "baseline_id": self.baseline_id,
            "delta": {key: list(pair) for key, pair in self.delta.items()},
            **({"arm": self.arm} if self.arm else {}),
        }


@dataclass(frozen=True)
class Plan:
    """The runs of one study, in order. `notes`: what was added or passed over, for the user to see."""

    study: str
    question: str
    baseline: str
    primary_metric: str
    margin: str
    labels: dict[str, str]  # label of a variant -> what tables and figures call it
    analysis: dict[str, Any]  # what is computed after the runs: its name and its options; empty for nothing
    output_dir: Path
    runs: tuple[PlannedRun, ...]
    notes: tuple[str, ...] = ()
    skipped: tuple[dict[str, str], ...] = ()  # members left out by on_invalid=skip: overrides and reason
    tuning: Tuning | None = None  # what is tuned before; until it is, `runs` are at the arms' own values

    def to_json(self, command: Sequence[str] = ()) -> dict[str, Any]:
        """plan.json; `command` is the argv that asked for it."""
        return {
            "schema": SCHEMA,
            "study": self.study,
            "question": self.question,
            "command": list(command),
            "baseline": self.baseline,
            "primary_metric": self.primary_metric,
            "margin": self.margin or None,
            **({"labels": self.labels} if self.labels else {}),
            "analysis": self.analysis,
            "runs": [run.to_json() for run in self.runs],
            **({"skipped": list(self.skipped)} if self.skipped else {}),
            **({"match": {"twins": {k: twin.to_json() for k, twin in self.twins.items()}}} if self.twins else {}),
            **({"tune": self.tuning.to_json()} if self.tuning else {}),
        }

    @property
    def twins(self) -> dict[str, Twin]:
        """Label -> what was solved, of the variants that are matched."""
        return {run.label: run.twin for run in self.runs if run.twin}


def expand(overrides: Sequence[str], config_dirs: Sequence[str | Path] = ()) -> Plan:
    """All runs that these overrides ask for. ConfigError for the first thing that cannot be run or would mislead."""
    composer = Composer(config_dirs)
    grid = sweep.jobs(composer, overrides)
    shared = set(grid[0]).intersection(*grid[1:])
    asked, skipped = compose_members(composer, grid, shared)
    rules.one_study(asked)
    tune = tune_keys.of_all(asked)
    matching = any(map(twins.is_asked, asked))
    asked = twins.without_own_twins(composer, asked)
    asked, baselines, added, lost, alone = pair(composer, asked, shared)
    rules.refuse_idle_values([*added, *asked])
    solved = twins.matched(composer, asked, baselines, matching, shared)
    skipped = (*skipped, *lost, *solved.lost)
    asked, baselines = solved.jobs, solved.baselines
    _check_flops([*added, *asked], shared)
    for job, baseline in zip(asked, baselines, strict=True):
        if baseline and baseline is not job:
            rules.refuse_idle_ablations(composer, job, baseline)
        rules.refuse_conflicts(composer, job)
    rules.refuse_twins(asked)
    jobs, pairs = [*added, *asked], [*added, *baselines]
    _label(jobs)
    declared = {twins.without(job.overrides): job.config.label for job in jobs if not twins.is_asked(job)}
    first = asked[0].config.experiment
    named = {pair.config.label for pair in pairs if pair and any(pair is job for job in jobs)}
    plan = Plan(
        study=first.name,
        question=first.question,
        baseline=named.pop() if len(named) == 1 else f"each with ablation={first.baseline}" if named else "",
        primary_metric=first.primary_metric or "",
        margin=first.margin,
        labels=names_of(jobs, composer.groups["ablation"]),
        analysis={"name": first.analysis, "options": dict(first.options)} if first.analysis else {},
        output_dir=Path(asked[0].config.output_dir),
        runs=tuple(
            _planned(job, baseline, jobs, _named(solved.twins.get(id(job)), job, declared))
            for job, baseline in zip(jobs, pairs, strict=True)
        ),
        skipped=skipped,
        notes=(
            *say_skipped(skipped, len(grid)),
            *alone,
            *_say_added(added),
            *solved.notes,
            *_say_uneven_tables(jobs, pairs),
            *composer.warnings,
        ),
    )
    return first_stage(plan, tune)


def _check_flops(jobs: Sequence[Job], shared: Collection[str]) -> None:
    """Once per variant: seeds change no count, and a skeleton takes its time."""
    counted = [job for job in jobs if job.config.train.budget_unit == "flops"]
    for job in {variant(job.config): job for job in reversed(counted)}.values():
        with named_run(job.overrides, shared):
            rules.check_flops(job)


def _say_added(added: Sequence[Job]) -> Iterator[str]:
    if added:
        stacks = {f"ablation={job.config.experiment.baseline}" for job in added}
        runs = f"{len(added)} runs" if len(added) > 1 else "1 run"
        yield f"added as the baseline: {runs} with {', '.join(sorted(stacks))} (add_baseline=false leaves it out)"


def _say_uneven_tables(jobs: Sequence[Job], baselines: Sequence[Job | None]) -> Iterator[str]:
    """A tied table starts small; positions at N(0, 1) beside it drown the tokens, and training compares just that."""
    tied = []
    for job, baseline in zip(jobs, baselines, strict=True):
        model = job.config.model
        if not (job.config.train.budget and baseline and model.tie_weights) or baseline.config.model.tie_weights:
            continue
        if model.position == "learned" and model.init == "torch" and not model.options.get("init"):
            tied.append(job.config.label)
    if tied:
        yield (
            f"{', '.join(dict.fromkeys(tied))}: the tied table starts at 1/sqrt(3 emb_dim) and the positions beside it "
            "at 1, which costs more than the tie (experiments/tying). model.init=gpt2 starts both alike."
        )


def _label(jobs: Sequence[Job]) -> None:
    """Name every variant by its ablations and by the settings in which the runs of this plan differ."""
    found = [{**settings(job.parsed), **_match_settings(job)} for job in jobs]
    keys = list(dict.fromkeys(key for values in found for key in values))
    varying = [key for key in keys if len({values.get(key) for values in found}) > 1]
    ablating = any(job.ablations for job in jobs)
    for job, values in zip(jobs, found, strict=True):
        if not job.labelled and (ablating or varying):
            word = "baseline" if job.config.experiment.baseline == "none" else "no_ablation"
            named = {key: values[key] for key in varying if key in values}
            job.config.label = label(job.ablations, named, word if ablating else "")
    taken: dict[str, Job] = {}
    for job in jobs:
        if is_missing(job.config.label):
            why = "tables would take this name for a missing value. Choose another one."
            raise wrong_value("label", job.config.label, why, code="label-missing")
        other = taken.setdefault(job.config.label, job)
        if variant(other.config) != variant(job.config):
            one, two = (" ".join(j.overrides) for j in (other, job))
            raise wrong_value(
                "label",
                job.config.label,
                f"two different variants would have this name: {one}  and  {two}.",
                code="label-twice",
                one=one,
                two=two,
            )


def _match_settings(job: Job) -> dict[str, str]:
    """`match=params`, and the key where another one was asked for."""
    match = job.config.match
    by = {"match.by": match.by.removeprefix("model.")} if match.by else {}
    return {"match": match.cost, **by} if twins.is_asked(job) else {}


def _named(twin: Twin | None, job: Job, declared: dict[tuple[str, ...], str]) -> Twin | None:
    """The record with the label of the variant as it was declared, where that is another run of the plan."""
    return replace(twin, of=declared.get(twins.without(job.overrides), "")) if twin and twins.is_asked(job) else twin


def _planned(job: Job, baseline: Job | None, jobs: Sequence[Job], twin: Twin | None) -> PlannedRun:
    own = identity(job.config)
    runs = baseline is not None and any(other is baseline for other in jobs)
    return PlannedRun(
        id=own,
        label=job.config.label,
        seed=job.config.seed,
        folder=f"{slug(job.config.label)}-s{job.config.seed}-{own[:8]}",
        overrides=job.overrides,
        baseline_id=identity(baseline.config) if baseline and runs else None,
        delta=changed(baseline.config, job.config) if baseline else {},
        config=replace(job.config, match=MatchConfig(), tune=TuneConfig()),  # solved: nothing is left to match or tune
        twin=twin,
    )
