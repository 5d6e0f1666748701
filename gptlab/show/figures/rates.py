"""The trials of a tuning: what each arm reached at each value, and where its optimum lies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gptlab.comparing.rates.arms import TunedArm, arms_of
from gptlab.show.figures import page, panels, style
from gptlab.store.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HIGH, LEFT, RIGHT, TOP, BOTTOM = 7.0, 3.3, 0.8, 0.25, 0.75, 0.85  # inches
OPTIMA = 0.14  # inches that the interval of each optimum takes, above the curves


def rates_figure(study: Study, asked: float | None = None) -> Figure | None:
    """Loss against the tuned key, a curve for each arm; None where nothing was tuned or no trial has ended.

    `asked`: the width in inches.
    """
    from matplotlib.figure import Figure

    tuning = study.plan.tuning
    found = arms_of(tuning, study.folder) if tuning else {}
    found = {label: arm for label, arm in found.items() if arm.runs}
    if tuning is None or not found:
        return None
    labels, cut = panels.shown(list(found), len(style.LINES))
    arms = {label: found[label] for label in labels}
    width = asked or WIDTH
    names = style.apart(labels, page.letters(width - 0.9, 8.5))
    columns, rows = page.legend_columns(names, width - 0.16, 8.5, 0.7)
    top = TOP + page.ROW * rows
    optima = {label: best for label, arm in arms.items() if (best := arm.optimum)}
    height = top + HIGH + BOTTOM + OPTIMA * len(optima)
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes(
        (LEFT / width, BOTTOM / height, (width - LEFT - RIGHT) / width, (HIGH + OPTIMA * len(optima)) / height)
    )
    axes.set_xscale("log")
    low, high = _limits(arms)
    room = high - low
    axes.set_ylim(low - 0.05 * room, high + room * (0.05 + OPTIMA * (len(optima) + 0.5) / HIGH))
    for place, (label, arm) in enumerate(arms.items()):
        _curve(axes, arm, style.LINES[place], names[place], high)
        if label in optima:
            _optimum(axes, arm, style.LINES[place], high + room * OPTIMA * (list(optima).index(label) + 1) / HIGH)
    values = sorted({trial.value for arm in arms.values() for trial in arm.trials})
    axes.set_xticks(values, [f"{value:g}" for value in values], rotation=35 if len(values) > 5 else 0, fontsize=8)
    axes.minorticks_off()
    axes.set_xlabel(tuning.protocol.key)
    axes.set_ylabel(style.named(tuning.protocol.metric))
    figure.legend(
        *axes.get_legend_handles_labels(), loc="upper left", ncols=columns, fontsize=8.5, handlelength=3.4,
        columnspacing=1.6, bbox_to_anchor=(0.08 / width, 1 - 0.62 / height), borderaxespad=0.0, labelspacing=0.35,
    )  # fmt: skip
    seeds = f"dots: tuning seeds {', '.join(map(str, tuning.protocol.seeds))}"
    marks = ["ring: best of the grid", "hollow, on top: optimum, 95% interval"]
    words = [style.plain(study.plan.study, 40), seeds, *marks, cut]
    style.heading(figure, f"Each arm at each {tuning.protocol.name.replace('_', ' ')}", style.joined(words))
    return figure


def _limits(arms: Mapping[str, TunedArm]) -> tuple[float, float]:
    """From the best score to the worst, or to the loss before training where one is worse than that."""
    outcomes = [found for arm in arms.values() for trial in arm.trials for found in trial.outcomes.values()]
    scores = [found.score for found in outcomes if found.score is not None and not found.diverged] or [0.0, 1.0]
    begun = [found.initial for found in outcomes if found.initial is not None]
    low, high = min(scores), max(scores)
    if begun and low < max(begun) < high:
        high = max(begun)
    return low, high if high > low else low + (abs(low) or 1.0)


def _curve(axes: Axes, arm: TunedArm, look: dict[str, Any], name: str, top: float) -> None:
    """Means of the values at which every seed survived, each seed as a dot; a cross at the top where one did not."""
    kept = [trial for trial in arm.trials if trial.outcomes and not trial.lost]
    sign = 1 if arm.lower else -1
    axes.plot([t.value for t in kept], [sign * t.cost(arm.lower) for t in kept], label=name, markersize=4.5, **look)
    for trial in arm.trials:
        for found in trial.outcomes.values():
            if found.diverged or found.score is None:
                axes.plot(trial.value, top, marker="x", markersize=7, color=look["color"], clip_on=False)
            else:
                axes.plot(trial.value, found.score, marker=".", markersize=4, color=look["color"], alpha=0.6)
    best = next((trial for trial in kept if trial.value == arm.chosen), None)
    if best is not None:
        ring: dict[str, Any] = {"marker": "o", "markersize": 11, "markerfacecolor": "none", "linestyle": ""}
        axes.plot(best.value, sign * best.cost(arm.lower), color=look["color"], **ring)


def _optimum(axes: Axes, arm: TunedArm, look: dict[str, Any], height: float) -> None:
    """Its interval as a bar above the curves, within what was tried."""
    found = arm.optimum
    assert found is not None
    color, ends = look["color"], (arm.trials[0].value, arm.trials[-1].value)
    if found.low is not None and found.high is not None and math.isfinite(found.high):
        axes.plot([max(found.low, ends[0]), min(found.high, ends[1])], [height] * 2, color=color, linewidth=2)
    axes.plot(found.value, height, marker=look["marker"], markersize=5, color=color, markerfacecolor="white")
