"""What each run is compared with, and what becomes of one whose baseline cannot be built."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from gptlab.declare.composer import Composer, Job
from gptlab.errors import ConfigError, wrong_value
from gptlab.identity import identity, variant
from gptlab.planning.matching import plain, without
from gptlab.planning.members import compose_one, left_out


class Paired(NamedTuple):
    """`jobs` and, for each, the one it is compared with; `added`: baselines that nobody asked for but that shall run.

    `lost`: members that on_invalid=skip leaves out with their baseline, as in `Plan.skipped`. `notes`: for the user.
    """

    jobs: list[Job]
    baselines: list[Job | None]
    added: list[Job]
    lost: tuple[dict[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def pair(composer: Composer, jobs: Sequence[Job], shared: Collection[str]) -> Paired:
    """With ablations: the same overrides, with the experiment's baseline in place of the ablations.

    Without, but with several variants: the first one of the same seed. `shared`: overrides that all members have.
    """
    if any(job.ablations for job in jobs):
        return _with_ablations(composer, jobs, shared)
    _refuse_idle_baseline(jobs)
    firsts: dict[int, Job] = {}
    for job in jobs:
        firsts.setdefault(job.config.seed, job)
    several = len({variant(job.config) for job in jobs}) > 1
    return Paired(list(jobs), [firsts[job.config.seed] if several else None for job in jobs], [])


def _with_ablations(composer: Composer, jobs: Sequence[Job], shared: Collection[str]) -> Paired:
    known = {identity(job.config): job for job in reversed(jobs)}
    composed: dict[tuple[str, ...], Job | ConfigError] = {}
    found = Paired([], [], [])
    lost: list[tuple[Job, ConfigError]] = []
    notes: list[str] = []
    for job in jobs:
        texts = _of_baseline(job)
        if texts not in composed:
            composed[texts] = _composed(composer, texts)
        baseline = composed[texts]
        if isinstance(baseline, ConfigError):
            if job.config.add_baseline:
                lost.append((job, baseline))
                continue
            notes.append(
                f"{' '.join(job.overrides)}: compared with nothing, because its baseline cannot be built: {baseline}"
            )
            found.jobs.append(job)
            found.baselines.append(None)
            continue
        baseline = job if job.ablations == baseline.ablations else baseline
        twin = known.setdefault(identity(baseline.config), baseline)
        if twin.ablations == baseline.ablations:  # otherwise `twin` has an ablation that changes nothing: refused later
            baseline = twin
        if baseline.config.add_baseline and not any(baseline is other for other in (*jobs, *found.added)):
            found.added.append(baseline)
        found.jobs.append(job)
        found.baselines.append(baseline)
    if lost and (jobs[0].config.on_invalid != "skip" or not found.jobs):
        raise _refused(*lost[0])
    _refuse_all_baselines(found)
    why = [left_out(job.overrides, shared, f"its baseline cannot be built: {error}") for job, error in lost]
    return found._replace(lost=tuple(why), notes=tuple(notes))


def _of_baseline(job: Job) -> tuple[str, ...]:
    """The overrides of its baseline, which costs what it costs."""
    swap = {"ablation": f"ablation={job.config.experiment.baseline}", "label": ""}
    return without(list(filter(None, (swap.get(o.key_or_group, str(o.input_line)) for o in job.parsed))))


def _composed(composer: Composer, texts: Sequence[str]) -> Job | ConfigError:
    """The baseline, or why it contradicts itself. A wrong name or type is raised."""
    try:
        return plain(composer, compose_one(composer, texts, ()))
    except ConfigError as error:
        if not error.facts.get("contradiction"):
            raise
        return error


def _refused(job: Job, error: ConfigError) -> ConfigError:
    return error.reworded(
        f"{error} It is the baseline of {' '.join(job.overrides)}. experiment.baseline=NAME names another, "
        "add_baseline=false runs without one.",
        baseline_of=list(job.overrides),
    )


def _refuse_all_baselines(found: Paired) -> None:
    if all(baseline is job for job, baseline in zip(found.jobs, found.baselines, strict=True)):
        raise wrong_value(
            "experiment.baseline",
            found.jobs[0].config.experiment.baseline,
            "every run is its own baseline, so nothing would be compared.",
            code="all-are-baselines",
        )


def _refuse_idle_baseline(jobs: Sequence[Job]) -> None:
    named = next((job.config.experiment.baseline for job in jobs if job.config.experiment.baseline != "none"), None)
    if named or any(o.key_or_group == "experiment.baseline" for job in jobs for o in job.parsed):
        raise wrong_value(
            "experiment.baseline",
            named or "none",
            "would be ignored, because no run has an ablation.",
            code="baseline-without-ablation",
        )
