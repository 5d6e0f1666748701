"""One cell: from the values of a variant and its baseline, seed by seed, to a difference and a verdict in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gptlab.comparing import statistics as stats
from gptlab.comparing.comparison import BETTER, DIFFERENT, EQUIVALENT, NOT_COMPARABLE, TOO_FEW, UNCLEAR, WORSE, Cell
from gptlab.errors import wrong_value
from gptlab.metrics import Metric

CONFIRMED_FROM = 5  # pairs: with fewer, a finding is marked exploratory
INTERVAL_FROM = 3
ONE_SEED = "one seed: cannot be told from noise"
TWO_SEEDS = "two seeds: a range, not an interval"
Values = Mapping[int, float]  # seed -> value


@dataclass(frozen=True)
class Margin:
    """A difference too small to matter: `0.01` in the metric's unit, or `1%` of the baseline."""

    text: str
    size: float
    relative: bool

    @classmethod
    def parse(cls, text: str) -> Margin:
        """ConfigError unless `text` is a positive number or percentage."""
        number = text.strip()
        try:
            size = float(number.removesuffix("%"))
        except ValueError:
            size = math.nan
        if not (math.isfinite(size) and size > 0):
            raise wrong_value(
                "margin",
                text,
                "must be a positive number (in the metric's unit) or a percentage: 0.01, 1%.",
                code="margin-not-positive",
            )
        relative = number.endswith("%")
        return cls(number, size / 100 if relative else size, relative)

    def bounds(self, metric: Metric, baseline: float) -> tuple[float, float]:
        """Lowest and highest difference that do not matter; in logarithms for a metric that is compared by ratios."""
        if metric.kind == "positive_scale":
            if not self.relative:
                raise wrong_value(
                    "margin",
                    self.text,
                    f"{metric.name} is compared by ratios. Give a percentage: 5%.",
                    code="margin-needs-percentage",
                    name=metric.name,
                )
            return -math.log1p(self.size), math.log1p(self.size)
        size = self.size * abs(baseline) if self.relative else self.size
        return -size, size


class Draft(dict[str, Any]):
    """A cell that is not finished: its corrected p comes when all the cells of its family are there."""

    metric: Metric
    found: stats.Paired | None = None
    differences: Sequence[float] = ()


def summary(metric: Metric, step: int | None, values: Values) -> Draft:
    """What a variant's own values say: n, mean, sd."""
    numbers = list(values.values())
    draft = Draft(metric=metric.name, step=step, n=len(numbers))
    draft.metric = metric
    if numbers:
        draft["mean"] = stats.mean(numbers)
        if metric.kind != "exact":
            draft["sd"] = stats.sd(numbers)
            draft["half_width"] = stats.half_width(draft["sd"], len(numbers))
        elif min(numbers) != max(numbers):
            draft["reason"] = "counted, but not the same in every seed"
    return draft


def compared(metric: Metric, step: int | None, own: Values, base: Values, expected: int, problem: str) -> Draft:
    """Add the difference to the baseline. `expected`: pairs that were planned. `problem`: why it means nothing."""
    draft = summary(metric, step, own)
    if metric.kind == "exact":
        return _counted(draft, own, base)
    seeds = sorted(own.keys() & base.keys())
    draft["pairs"] = n = len(seeds)
    draft["marked"] = n < expected
    if problem or not n:
        draft["verdict"], draft["reason"] = NOT_COMPARABLE, problem or _nothing(own, base)
        return draft
    mine, its = [own[seed] for seed in seeds], [base[seed] for seed in seeds]
    return _paired(draft, mine, its, expected)


def confirm(draft: Draft, margin: Margin | None, baseline: float) -> None:
    """What only the primary metric gets: the second opinion of a sign-flip test, and the test for equivalence."""
    found = draft.found
    assert found is not None
    if stats.SIGN_FLIP_FROM <= found.n <= stats.SIGN_FLIP_TO:
        draft["p_sign_flip"] = stats.sign_flip(draft.differences)
    if margin:
        low, high = margin.bounds(draft.metric, baseline)
        draft["p_equivalence"] = stats.equivalence(found.mean, found.sd, found.n, low, high)


def finish(draft: Draft, primary: bool) -> Cell:
    """The cell with its verdict, now that its p values have been corrected for the others of their family."""
    p_corrected, p_equivalence = draft.get("p_corrected"), draft.get("p_equivalence")
    if p_corrected is not None:
        draft["exploratory"] = not primary or draft["pairs"] < CONFIRMED_FROM
        clear = p_corrected < stats.ALPHA
        if p_equivalence is not None and p_equivalence < stats.ALPHA:
            draft["verdict"] = EQUIVALENT
        elif not clear:
            draft["verdict"] = UNCLEAR
        elif draft.metric.direction == "neither":
            draft["verdict"] = DIFFERENT
        else:
            lower = draft["difference"] < (1 if draft["scale"] == "ratio" else 0)
            draft["verdict"] = BETTER if lower == (draft.metric.direction == "lower") else WORSE
        flip = draft.get("p_sign_flip")
        if clear and flip is not None and flip >= stats.ALPHA:
            draft["reason"] = _join(f"the exact sign-flip test does not agree (p = {flip:.2g})", draft)
            draft["exploratory"] = True
        draft["bold"] = draft["verdict"] == BETTER and not draft["exploratory"] and not draft["marked"]
    return Cell(**draft)


def _counted(draft: Draft, own: Values, base: Values) -> Draft:
    """Exact metrics: the difference is a fact, and nothing is tested."""
    draft["pairs"] = len(own.keys() & base.keys())
    if draft["n"] and base:
        before = stats.mean(list(base.values()))
        draft["difference"] = draft["mean"] - before
        draft["relative"] = 100 * draft["difference"] / before if before else None
    draft.setdefault("reason", "counted, not tested")
    return draft


def _paired(draft: Draft, mine: Sequence[float], its: Sequence[float], expected: int) -> Draft:
    metric, n = draft.metric, len(mine)
    ratio = metric.kind == "positive_scale"
    draft["scale"] = "ratio" if ratio else "difference"
    if ratio:
        if min(*mine, *its) <= 0:
            draft["verdict"], draft["reason"] = NOT_COMPARABLE, "a value of zero or below has no ratio"
            return draft
        mine, its = [math.log(value) for value in mine], [math.log(value) for value in its]
    differences = [a - b for a, b in zip(mine, its, strict=True)]
    middle, before = stats.mean(differences), stats.mean(its)
    draft["difference"] = _back(middle, ratio)
    draft["relative"] = 100 * math.expm1(middle) if ratio else 100 * middle / abs(before) if before else None
    draft["correlation"] = stats.correlation(mine, its)
    noise = stats.sd(its)
    draft["noise_units"] = middle / noise if noise and not stats.flat(its) else None
    if metric.direction != "neither":
        draft["wins"] = sum(d < 0 if metric.direction == "lower" else d > 0 for d in differences)
    if draft["marked"]:
        draft["reason"] = f"on {n} of {expected} seeds"
    size = 1.0 if ratio else max(map(abs, (*mine, *its)))
    if n == 1:
        draft["verdict"], draft["reason"] = TOO_FEW, _join(ONE_SEED, draft)
    elif n < INTERVAL_FROM:
        draft["low"], draft["high"], draft["interval"] = (
            _back(min(differences), ratio),
            _back(max(differences), ratio),
            "range",
        )
        draft["verdict"], draft["reason"] = TOO_FEW, _join(TWO_SEEDS, draft)
    elif stats.flat(differences, size):
        same = all(d == 0 for d in differences)
        words = (
            "the same numbers in every seed" if same else "the same difference in every seed: no noise to test it by"
        )
        draft["verdict"], draft["reason"] = (UNCLEAR if same else NOT_COMPARABLE), _join(words, draft)
    else:
        _tested(draft, differences, ratio)
    return draft


def _tested(draft: Draft, differences: Sequence[float], ratio: bool) -> None:
    found = stats.paired(differences)
    draft["low"], draft["high"], draft["interval"] = _back(found.low, ratio), _back(found.high, ratio), "t"
    draft["p"], draft["effect"] = found.p, found.mean / found.sd
    least = stats.detectable(found.n)
    draft["detectable"] = _back(least * found.sd, ratio) if least else None
    draft["n_needed"] = stats.n_needed(draft["effect"])
    draft.found, draft.differences = found, differences


def _back(value: float, ratio: bool) -> float:
    """From the logarithm to the ratio; a ratio too large for a number is infinite."""
    if not ratio:
        return value
    return math.exp(value) if value < 709 else math.inf


def _nothing(own: Values, base: Values) -> str:
    if not own:
        return "no finished run has a finite value"
    return "no seed in common with the baseline" if base else "the baseline has no finite value"


def _join(words: str, draft: Draft) -> str:
    return f"{words}; {draft['reason']}" if draft.get("reason") else words
