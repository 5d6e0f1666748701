"""Tuned arms: a plan in two stages. First the trials of every arm, then the verdict at each arm's best value.

The choice is made of finished trials, whenever it is needed, so that a study that was stopped goes on where it was. A
trial is an ordinary run of its config, on a seed that decides nothing: what was chosen for its seeds is too good on
them (docs/fairness.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlab.config import Config, TuneConfig
from gptlab.declare.overrides import slug
from gptlab.declare.to_config import settled_and_checked
from gptlab.errors import ConfigError
from gptlab.identity import identity
from gptlab.planning.changed import changed
from gptlab.planning.tune_keys import checked, value_of, with_value
from gptlab.store.names import ID_LENGTH
from gptlab.store.states import folder_of, run_folders, trial_of
from gptlab.tuned import Outcome, Protocol, Trial, best_place, grid, most_runs, next_values

if TYPE_CHECKING:
    from gptlab.planning.plan import Plan, PlannedRun

Runs = tuple["PlannedRun", ...]
Starts = Callable[["PlannedRun", Path], bool]


@dataclass(frozen=True)
class Tuning:
    """What is tuned, and how far it has come. `values`: arm (the label of its variant) -> what it tries, rising.

    `chosen` is empty until all trials have ended. `controls`: arms at the value of their baseline, on verdict seeds,
    where their own is another: what a study with one value for all would have said.
    """

    protocol: Protocol
    values: Mapping[str, tuple[float, ...]]
    trials: Runs
    chosen: Mapping[str, float]
    controls: Runs = ()
    deciding: int = 0  # how many runs are to decide
    compared: int = 0  # and how many of them have another arm as their baseline: as many controls there may be

    @property
    def span(self) -> tuple[int, int]:
        """How many runs the whole study takes, at least and at most."""
        least, most = most_runs(len(self.values), self.protocol)
        return least + self.deciding, most + self.deciding + self.compared

    @property
    def words(self) -> str:
        """For the user, before the first trial: what comes, and how much of it."""
        rule, arms = self.protocol, len(self.values)
        least, most = most_runs(arms, rule)
        up_to = f" (up to {most}, where a best value lies at the edge)" if most > least else ""
        extra = f", and up to {self.compared} at the baseline's" if self.compared else ""
        seeds = ", ".join(map(str, rule.seeds))
        low, high = self.span
        return (
            f"{rule.key} is tuned first: {arms} {'arms' if arms > 1 else 'arm'}, {rule.points} values each, on seeds "
            f"{seeds} of their own: {least} trials{up_to}. Then {self.deciding} runs at each arm's best value "
            f"decide{extra}: {low} to {high} runs in all."
        )

    def to_json(self) -> dict[str, Any]:
        """The record in plan.json: docs/audit.md."""
        rule = self.protocol
        return {
            "key": rule.key, "factor": rule.factor, "points": rule.points, "max_trials": rule.max_trials,
            "seeds": list(rule.seeds), "metric": rule.metric, "lower": rule.lower,
            "runs": list(self.span), "stage": "verdict" if self.chosen else "trials",
            "arms": {
                arm: {"values": list(values), "trials": len(values), "chosen": self.chosen.get(arm)}
                for arm, values in self.values.items()
            },
            "trials": [{**run.to_json(), "value": value_of(run.config, rule.key)} for run in self.trials],
            "controls": [run.to_json() for run in self.controls],
        }  # fmt: skip

    def placed(self, where: Callable[[PlannedRun], str]) -> Tuning:
        """With the folders that its runs have or will have."""
        trials, controls = (
            tuple(replace(run, folder=where(run)) for run in runs) for runs in (self.trials, self.controls)
        )
        return replace(self, trials=trials, controls=controls)


def first_stage(plan: Plan, tune: TuneConfig) -> Plan:
    """The plan with the trials that it begins with. ConfigError for what cannot be tuned."""
    if not tune.keys:
        return plan
    protocol = checked(plan, tune)
    arms = {run.label: run for run in reversed(plan.runs)}
    order = [run.label for run in plan.runs if run.baseline_id == run.id] + [run.label for run in plan.runs]
    starts = {label: value_of(arms[label].config, protocol.key) for label in dict.fromkeys(order)}
    values = {label: grid(start, protocol.factor, protocol.points) for label, start in starts.items()}
    compared = sum(run.baseline_id not in (None, run.id) for run in plan.runs)
    tuning = Tuning(protocol, values, _trials(arms, values, protocol), {}, (), len(plan.runs), compared)
    return replace(plan, tuning=tuning)


def at_work(plan: Plan) -> Plan:
    """The plan whose runs are those that its stage starts."""
    if plan.tuning is None:
        return plan
    runs = (*plan.runs, *plan.tuning.controls) if plan.tuning.chosen else plan.tuning.trials
    return replace(plan, runs=runs)


def reached(plan: Plan, starts: Starts = lambda run, folder: False) -> Plan:
    """The plan at the stage that the finished trials in its folder have brought it to."""
    while (later := following(plan, starts)) is not None:
        plan = later
    return plan


def following(plan: Plan, starts: Starts = lambda run, folder: False) -> Plan | None:
    """The plan with what comes when its trials have ended; None where it is at its end, or they have not.

    `starts`: whether a trial in its folder is to be run again, though it has ended.
    """
    tuning = plan.tuning
    if tuning is None or tuning.chosen:
        return None
    ended = _ended(plan.output_dir / plan.study, tuning, starts)
    if ended is None:
        return None
    arms = {run.label: run for run in reversed(plan.runs)}
    values = {arm: (*tuning.values[arm], more) for arm, more in next_values(ended, tuning.protocol).items()}
    if values:
        try:
            risen = {arm: tuple(sorted(found)) for arm, found in values.items()}
            return replace(plan, tuning=replace(tuning, values=risen, trials=_trials(arms, risen, tuning.protocol)))
        except ConfigError:  # beyond what the key may be: the grid ends here, for all arms alike
            pass
    lower = tuning.protocol.lower
    chosen = {arm: trials[best_place(trials, lower)].value for arm, trials in ended.items()}
    return _verdict(plan, tuning, chosen)


def said(plan: Plan) -> str:
    """For the user, at each stage: what comes first, that grids go on, or what was chosen."""
    assert plan.tuning is not None
    tuning, name = plan.tuning, plan.tuning.protocol.name
    tried = len(next(iter(tuning.values.values())))
    if not tuning.chosen:
        more = f"a best {name} lies at the edge: every arm tries one more, {tried} now"
        return more if tried > tuning.protocol.points else tuning.words
    words = ", ".join(f"{arm} {value:g}" for arm, value in tuning.chosen.items())
    controls = f"; {len(tuning.controls)} runs at the baseline's beside them" if tuning.controls else ""
    return f"best {name} of {tried}: {words}{controls}"


def _verdict(plan: Plan, tuning: Tuning, chosen: Mapping[str, float]) -> Plan:
    """The runs that decide, at what was chosen, and those at the value of the baseline."""
    key = tuning.protocol.key
    owners = {run.id: run for run in plan.runs}
    tuned = {run.id: _at(run, key, chosen[run.label], run.seed, run.label) for run in plan.runs}
    controls = []
    for run in plan.runs:
        base = owners.get(run.baseline_id or "")
        if base is not None and base is not run and chosen[base.label] != chosen[run.label]:
            label = f"{run.label}+{tuning.protocol.name}={chosen[base.label]:g}"
            one = _at(run, key, chosen[base.label], run.seed, label)
            controls.append(replace(_against(one, tuned[base.id]), arm=run.label))
    runs = tuple(_against(tuned[run.id], tuned.get(run.baseline_id or "")) for run in plan.runs)
    return replace(plan, runs=runs, tuning=replace(tuning, chosen=dict(chosen), controls=tuple(controls)))


def _ended(folder: Path, tuning: Tuning, starts: Starts) -> dict[str, list[Trial]] | None:
    """Arm -> its trials; None while one of them is to come."""
    found: dict[str, list[Trial]] = {}
    runs, known = iter(tuning.trials), run_folders(folder)
    for arm, values in tuning.values.items():
        for value in values:
            outcomes: dict[int, Outcome] = {}
            for seed in tuning.protocol.seeds:
                run = next(runs)
                place = folder / folder_of(folder, run.id, run.folder, known)
                ended = trial_of(place, tuning.protocol.metric)
                if ended is None or starts(run, place):
                    return None
                outcomes[seed] = ended
            found.setdefault(arm, []).append(Trial(value, outcomes))
    return found


def _trials(arms: Mapping[str, PlannedRun], values: Mapping[str, Sequence[float]], protocol: Protocol) -> Runs:
    """Arm by arm, value by value, seed by seed."""
    runs = []
    for arm, tried in values.items():
        for value in tried:
            label = f"{arm}+{protocol.name}={value:g}"
            one = replace(_at(arms[arm], protocol.key, value, protocol.seeds[0], label), arm=arm)
            runs += [one, *(_seeded(one, seed) for seed in protocol.seeds[1:])]
    return tuple(replace(run, baseline_id=None, delta={}, twin=None) for run in runs)


def _at(run: PlannedRun, key: str, value: float, seed: int, label: str) -> PlannedRun:
    """The run with another value. ConfigError where the key may not have it."""
    config = settled_and_checked(with_value(run.config, key, value), (key,))
    kept = [word for word in run.overrides if word.partition("=")[0].lstrip("+").partition(".")[0] != "tune"]
    kept = [word for word in kept if word.partition("=")[0].lstrip("+") != key]
    moved = replace(run, label=label, config=replace(config, label=label), overrides=(*kept, f"{key}={value:g}"))
    return _seeded(moved, seed)


def _seeded(run: PlannedRun, seed: int) -> PlannedRun:
    """The run with another seed: id, name of the folder and words follow."""
    config: Config = replace(run.config, seed=seed)
    own = identity(config)
    words = [word for word in run.overrides if not word.startswith("seed=")]
    return replace(
        run, id=own, seed=seed, config=config, folder=f"{slug(run.label)}-s{seed}-{own[:ID_LENGTH]}",
        overrides=(*words, f"seed={seed}"),
    )  # fmt: skip


def _against(run: PlannedRun, base: PlannedRun | None) -> PlannedRun:
    """The run, compared with `base`."""
    if base is None:
        return replace(run, baseline_id=None)
    return replace(run, baseline_id=base.id, delta=changed(base.config, run.config))
