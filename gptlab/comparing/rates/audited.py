"""The lines of an audit on tuned rates, each from the trials themselves."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from gptlab.comparing.audit_lines import FAIL, NOT_ASKED, PASS, Line, listed
from gptlab.comparing.comparison import Comparison
from gptlab.comparing.rates.arms import TunedArm
from gptlab.store.study_plan import StoredTuning


def tuned(arms: Mapping[str, TunedArm], command: str) -> Line:
    """Every arm had as many trials, each best one has neighbours on both sides, and it is what was taken."""
    name = "rates tuned with equal trials"
    if not arms:
        return Line(name, NOT_ASKED, "one rate for all arms", f"{command} tune=learning_rate")
    open_ = [label for label, arm in arms.items() if not arm.whole]
    if open_:
        return Line(name, FAIL, f"trials are missing: {listed(open_)}", command)
    if len({(len(arm.trials), arm.expected) for arm in arms.values()}) > 1:
        return Line(name, FAIL, f"trials differ: {', '.join(f'{k} {len(arm.trials)}' for k, arm in arms.items())}")
    lost = [label for label, arm in arms.items() if arm.none_survived]
    if lost:
        return Line(name, FAIL, f"no value survived on every seed: {listed(lost)}")
    other = [label for label, arm in arms.items() if arm.chosen != arm.best]
    if other:
        return Line(name, FAIL, f"not the best of its trials: {listed(other)}", command)
    edge = [label for label, arm in arms.items() if arm.edge]
    if edge:
        more = 2 * max(len(arm.trials) for arm in arms.values())
        words = f"the best rate is at the edge of the grid: {listed(edge)}"
        kept = [word for word in shlex.split(command) if not word.startswith("tune.max_trials=")]
        return Line(name, FAIL, words, shlex.join([*kept, f"tune.max_trials={more}"]))
    trials = len(next(iter(arms.values())).trials)
    return Line(name, PASS, f"{trials} trials for each of {len(arms)} arms, all bracketed")


def apart(tuning: StoredTuning | None, comparison: Comparison) -> Line:
    """No seed that chose a rate is among those that decide."""
    name = "tuning and verdict seeds apart"
    if tuning is None:
        return Line(name, NOT_ASKED, "nothing was tuned")
    used = {run.seed for run in tuning.trials}
    both = [seed for seed in comparison.seeds if seed in used]
    if both:
        return Line(name, FAIL, f"seeds that tuned also decide: {', '.join(map(str, both))}")
    return Line(name, PASS, "no seed did both")


def shown(arms: Mapping[str, TunedArm], comparison: Comparison, command: str) -> Line:
    """What other rates would have given, and how many runs were lost."""
    name = "sensitivity to the rate, and failed share, shown"
    planned = sum(row.n_planned for row in comparison.rows)
    lost = sum(row.n_failed + row.n_diverged for row in comparison.rows)
    share = f"{lost} of {planned} runs failed or diverged"
    if not arms:
        return Line(name, NOT_ASKED, f"{share}; no rates were tried", f"{command} tune=learning_rate")
    found = {label: arm.sensitivity for label, arm in arms.items()}
    missing = [label for label, value in found.items() if value is None]
    if missing:
        return Line(name, FAIL, f"{share}; no sensitivity of {listed(missing)}", command)
    tried = f"{sum(arm.lost for arm in arms.values())} of {sum(arm.runs for arm in arms.values())} trials"
    words = listed([f"{label} {value:.2g}" for label, value in found.items()])
    return Line(name, PASS, f"{share}, and {tried}; sensitivity in nats/token: {words}")
