"""Matched twins: one free key of a variant, solved so that the variant costs what its baseline costs.

A gated layer as wide as the MLP that it replaces has half as many weights again, and weights alone make a model better.
So its twin gets the width at which both cost the same, and what is left between them is the change itself. Costs are
counted on the model that is built (on the meta device), value by value; the baseline never moves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from gptlab.config import MatchConfig
from gptlab.declare.composer import Composer, Job
from gptlab.declare.overrides import ablations
from gptlab.declare.to_config import settled_and_checked
from gptlab.errors import ConfigError
from gptlab.identity import identity, variant
from gptlab.planning.match_costs import cost_of
from gptlab.planning.match_keys import BUDGET, GIVES_WAY, HIDDEN, key_of, start_of, typed, with_value
from gptlab.planning.members import left_out, named_run
from gptlab.planning.solving import Bracket, Point, bracket
from gptlab.twin import COSTS, Twin, percent_off


@dataclass
class Solver:
    """Solves each variant once, whatever the number of its seeds."""

    composer: Composer
    known: dict[tuple[str, str, str], Twin] = field(default_factory=dict)

    def twin(self, job: Job, baseline: Job) -> tuple[Job, Twin]:
        """The job with its key solved, and what was solved. ConfigError where no value is near enough."""
        match = job.config.match
        key = (variant(job.config), variant(baseline.config), repr(match))
        if key not in self.known:
            self.known[key] = self._solved(job, baseline)
        twin = self.known[key]
        if twin.start == twin.value:
            return plain(self.composer, job), twin
        return self._with(job, twin.by, int(twin.value)), twin

    def _solved(self, job: Job, baseline: Job) -> Twin:
        match, own = job.config.match, job.config
        by = key_of(match, own)
        target, before = cost_of(baseline.config, match.cost), cost_of(own, match.cost)
        start, step = start_of(by, own, job.changed)
        refusals: list[ConfigError] = []

        def cost(value: int) -> float | None:
            try:
                return cost_of(settled_and_checked(with_value(own, by, value), (by,)), match.cost)
            except ConfigError as error:
                refusals.append(error)
                return None

        found = bracket(cost, target, max(1, int(start)), step) if before != target else None
        points = [Point(value, reached) for value, reached in [(start, before)] if value]
        points += found.points if found else []
        best = min(points, key=lambda point: abs(point.cost - target), default=None)
        if found and not found.points and refusals:
            raise _unfit(match, by, refusals[0])
        if best is None or abs(percent_off(best.cost, target)) > match.tolerance:
            raise _refused(job, by, target, found)
        paired = by in (HIDDEN, BUDGET) and own.rng == "paired"
        twin = Twin(match.cost, by, start, best.value, target, before, best.cost, match.tolerance, paired)
        if best.value != start and variant(self._with(job, by, best.value).config) == variant(baseline.config):
            who = "+".join(job.ablations) or "this variant"
            raise ConfigError(
                f"match={match.cost}: the twin of {who} would be the baseline itself, because {by} undoes what {who} "
                "changes. match.by=KEY names another key.",
                code="match-undoes",
                key="match",
                by=by,
                ablations=list(job.ablations),
            )
        return twin

    def _with(self, job: Job, by: str, value: int) -> Job:
        return self.composer.job(job.overrides, {by: typed(by, value)}, GIVES_WAY.get(by, ()))


def of_match(text: str) -> bool:
    """Whether an override, as text or by its key alone, belongs to the group `match`."""
    return text.lstrip("+").partition("=")[0].partition(".")[0] == "match"


def without(overrides: Sequence[str]) -> tuple[str, ...]:
    """The overrides of the variant as it was declared."""
    return tuple(text for text in overrides if not of_match(text))


def plain(composer: Composer, job: Job) -> Job:
    """The same job without a match, wherever that was asked for: on the command line or in a file."""
    bare = composer.job(without(job.overrides))
    return replace(bare, config=replace(bare.config, match=MatchConfig()))


def is_asked(job: Job) -> bool:
    """Whether this variant shall cost what its baseline costs."""
    return job.config.match.cost != "none"


def without_own_twins(composer: Composer, jobs: Sequence[Job]) -> list[Job]:
    """The jobs, the baselines among them without a match and once: a baseline costs what it costs already."""
    if not any(is_asked(job) for job in jobs):
        return list(jobs)
    ablating = any(job.ablations for job in jobs)
    stacks = {job.config.experiment.baseline: () for job in jobs}
    stacks = {name: ablations(composer.parse([f"ablation={name}"])) for name in stacks}  # type: ignore[misc]
    firsts: dict[int, str] = {}
    seen: set[str] = set()
    kept: list[Job] = []
    for job in jobs:
        own = identity(job.config)
        first = firsts.setdefault(job.config.seed, own)
        is_baseline = job.ablations == stacks[job.config.experiment.baseline] if ablating else own == first
        if is_asked(job) and is_baseline:
            job = plain(composer, job)
        elif not (is_baseline and own in seen):
            kept.append(job)
            seen |= {own} if is_baseline else set()
            continue
        if own not in seen:
            kept.append(job)
            seen.add(own)
    return kept


@dataclass(frozen=True)
class Matched:
    """Jobs and their baselines with every twin solved. `twins`: by the id of a job in memory."""

    jobs: list[Job]
    baselines: list[Job | None]
    twins: dict[int, Twin]
    lost: tuple[dict[str, str], ...] = ()  # members that on_invalid=skip leaves out, as in `Plan.skipped`
    notes: tuple[str, ...] = ()


def matched(
    composer: Composer, jobs: Sequence[Job], baselines: Sequence[Job | None], asked: bool, shared: Collection[str]
) -> Matched:
    """Solve what was asked for. `asked`: whether a match was, before the baselines lost theirs.

    ConfigError where nothing is there to be matched, or no value is near enough.
    """
    solver = Solver(composer)
    found = Matched([], [], {})
    notes: dict[str, None] = {}
    lost: list[dict[str, str]] = []
    refused: ConfigError | None = None
    there = {identity(job.config): job for job in jobs if not is_asked(job)}
    for job, baseline in zip(jobs, baselines, strict=True):
        if is_asked(job) and baseline is None:
            raise _alone()
        if is_asked(job) and baseline and baseline is not job:
            try:
                with named_run(job.overrides, shared):
                    own, twin = solver.twin(job, baseline)
            except ConfigError as error:
                if job.config.on_invalid != "skip" or error.code == "unknown-name":
                    raise
                lost.append(left_out(job.overrides, shared, str(error)))
                refused = refused or error
                continue
            other = there.setdefault(identity(own.config), own)
            found.twins.setdefault(id(other), twin)
            if other is not own:  # at its cost already, or solved the same way for another cost
                notes[f"{other.config.label}: match={twin.cost}: {twin.words}: it is planned as it is already"] = None
                continue
            job = own
        found.jobs.append(job)
        found.baselines.append(baseline)
    compared = any(base and base is not job for job, base in zip(found.jobs, found.baselines, strict=True))
    if asked and not found.twins and not (lost and compared):
        raise refused or _alone()
    return replace(found, notes=tuple(notes), lost=tuple(lost))


def _alone() -> ConfigError:
    return ConfigError(
        "match: would be ignored, because a run is compared with nothing. Add an ablation, or a second value.",
        code="match-without-baseline",
        key="match",
    )


def _unfit(match: MatchConfig, by: str, error: ConfigError) -> ConfigError:
    """No value at all can be set: the first refusal says why."""
    return error.reworded(f"match={match.cost} by {by}: {error} match.by=KEY names another key.", by=by)


def _refused(job: Job, by: str, target: float, found: Bracket | None) -> ConfigError:
    match = job.config.match
    who, cost = f"match={match.cost}: {'+'.join(job.ablations) or 'this variant'}", COSTS[match.cost]
    if found and found.idle:
        return ConfigError(
            f"{who}: {by} changes nothing of its {cost}. match.by=KEY names another key.",
            code="match-key-idle",
            key="match.by",
            by=by,
        )
    if found and found.falls:
        return ConfigError(
            f"{who}: its {cost} do not rise with {by}, so that none can be searched for. match.by=KEY names another.",
            code="match-not-rising",
            key="match.by",
            by=by,
        )
    nearest = [(p.value, p.cost, percent_off(p.cost, target)) for p in (found.points if found else [])]
    words = " and ".join(f"{value} ({reached:,.0f}, {off:+.2g} %)" for value, reached, off in nearest)
    return ConfigError(
        f"{who}: no {by} comes within match.tolerance={match.tolerance:g} % of the baseline's {target:,.0f} {cost}. "
        f"The nearest: {words}.",
        code="match-none-near",
        key="match",
        by=by,
        tolerance=match.tolerance,
        target=target,
        nearest=nearest,
    )
