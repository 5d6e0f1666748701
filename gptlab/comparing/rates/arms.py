"""What was tuned, arm by arm, read from the trials themselves: what each chose, and how much hung on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gptlab.comparing.rates.optimum import Optimum, optimum
from gptlab.store.states import folder_of, run_folders, trial_of
from gptlab.store.study_plan import StoredTuning
from gptlab.tuned import Outcome, Trial, at_edge, best_place


@dataclass(frozen=True)
class TunedArm:
    """One variant's. `trials`: rising; `expected`: tuning seeds, each of which a whole trial has."""

    key: str
    trials: tuple[Trial, ...]
    chosen: float | None  # as the plan has it; None while trials are to come
    lower: bool
    expected: int

    @property
    def whole(self) -> bool:
        """Whether every trial has ended on every seed."""
        return all(len(trial.outcomes) == self.expected for trial in self.trials)

    @property
    def best(self) -> float | None:
        """What the trials say is best; None while one is to come."""
        return self.trials[best_place(self.trials, self.lower)].value if self.whole else None

    @property
    def none_survived(self) -> bool:
        """Whether each value lost a seed, so that none of them is better than another."""
        return all(trial.lost for trial in self.trials)

    @property
    def edge(self) -> bool:
        """Whether the best value lacks a neighbour on one side."""
        return at_edge(self.trials, self.lower)

    @property
    def runs(self) -> int:
        return sum(len(trial.outcomes) for trial in self.trials)

    @property
    def lost(self) -> int:
        """Of these, how many diverged or have no number."""
        return sum(trial.lost for trial in self.trials)

    @property
    def sensitivity(self) -> float | None:
        """Mean over the values of min(loss, initial loss), less the lowest of them, in nats per token (Wortsman et al.,
        2023). A run that diverged has its initial loss. None while trials are to come, or without an initial loss."""
        losses = [_mean([_held(found) for found in trial.outcomes.values()]) for trial in self.trials]
        known = [loss for loss in losses if loss is not None]
        return math.fsum(known) / len(known) - min(known) if self.whole and len(known) == len(losses) else None

    @property
    def optimum(self) -> Optimum | None:
        """Between the values: see `gptlab.comparing.rates.optimum`."""
        return optimum(self.trials, self.lower) if self.whole and not self.edge else None

    @property
    def words(self) -> str:
        """`0.01, bracketed; optimum 0.0121 (0.0098 to 0.0149)`."""
        if self.chosen is None:
            return f"{self.runs} of {self.expected * len(self.trials)} trials"
        place = "edge of the grid" if self.edge else "bracketed"
        found = self.optimum
        if found is None:
            return f"{self.chosen:g}, {place}"
        ends = f" ({found.low:.3g} to {found.high:.3g})" if found.low and found.high else ""
        return f"{self.chosen:g}, {place}; optimum {found.value:.3g}{ends}"

    @property
    def trials_words(self) -> str:
        """`5 values x 2 seeds; 1 of 10 diverged`."""
        seeds = f"{self.expected} seed{'' if self.expected == 1 else 's'}"
        lost = f"; {self.lost} of {self.runs} diverged" if self.lost else ""
        return f"{len(self.trials)} values x {seeds}{lost}"


def arms_of(tuning: StoredTuning, folder: Path) -> dict[str, TunedArm]:
    """Label of each variant -> what its trials in `folder` say."""
    known, rule = run_folders(folder), tuning.protocol
    outcomes: dict[tuple[str, float], dict[int, Outcome]] = {}
    for run in tuning.trials:
        found = trial_of(folder / folder_of(folder, run.id, run.folder, known), rule.metric)
        if found is not None and run.value is not None:
            outcomes.setdefault((run.arm, run.value), {})[run.seed] = found
    return {
        arm: TunedArm(
            rule.key,
            tuple(Trial(value, outcomes.get((arm, value), {})) for value in values),
            tuning.chosen.get(arm),
            rule.lower,
            len(rule.seeds),
        )
        for arm, values in tuning.values.items()
    }


def _held(found: Outcome) -> float | None:
    """The loss after training, and no more than before it."""
    if found.initial is None:
        return None
    return found.initial if found.diverged or found.final is None else min(found.final, found.initial)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None
