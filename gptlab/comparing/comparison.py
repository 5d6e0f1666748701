"""A comparison as data: variants in rows, metrics in cells, and beside each number how sure it is.

`gptlab.comparing.assemble.compare` makes it; tables, exports, figures and the report only show it. Every number that a
reader could ask for is here, so nothing that shows a comparison computes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

    from gptlab.comparing.rates.arms import TunedArm
    from gptlab.store.records import Record
    from gptlab.store.study import Study
    from gptlab.store.study_sources import Source
    from gptlab.twin import Twin

BETTER, WORSE = "better", "worse"
DIFFERENT = "clear difference"  # of a metric of which neither direction is better
EQUIVALENT = "equivalent within margin"
UNCLEAR = "no clear difference"
TOO_FEW = "too few seeds"
UNFINISHED = "unfinished"  # planned runs are still to come
NOT_COMPARABLE = "not comparable"
FINDINGS = (BETTER, WORSE, DIFFERENT)
VERDICTS = (*FINDINGS, EQUIVALENT, UNCLEAR, TOO_FEW, UNFINISHED, NOT_COMPARABLE)
TO_COME = "to come"  # in `Cell.lost`: a run that has not ended

Key = tuple[str, int | None]  # a metric, and the training step it was read at (None: the run's own single number)
Number = int | float


@dataclass(frozen=True)
class Cell:
    """One metric of one variant, and its difference to the baseline over the seeds that both have.

    `scale` says what `difference`, `low` and `high` are: a *difference* in the metric's unit, or a *ratio* (1 is no
    change) for metrics that vary by factors. `interval` says what `low` and `high` are: a 95 % Student-t interval, the
    mere range of two seeds, or nothing. None: not to be had. The baseline's own cell has `n`, `mean` and `sd` only.
    """

    metric: str
    step: int | None = None
    n: int = 0  # seeds with a finite value
    mean: float | None = None
    sd: float | None = None  # over these seeds; None for one seed and for what is counted
    half_width: float | None = None  # of the 95 % t interval of `mean`, from three seeds
    pairs: int = 0  # seeds that the baseline has too: all that follows rests on them
    expected: int = 0  # seeds that were planned for both
    lost: Mapping[str, int] = field(default_factory=dict)  # what became of the planned pairs without a number -> seeds
    scale: Literal["difference", "ratio"] = "difference"
    difference: float | None = None
    relative: float | None = None  # the same in percent of the baseline's mean
    low: float | None = None
    high: float | None = None
    interval: Literal["t", "range", ""] = ""
    documents: int | None = None  # held-out documents that both were scored on; of heldout_loss
    low_documents: float | None = None  # 95 % t interval of the difference over these documents
    high_documents: float | None = None
    p: float | None = None  # paired t test, two-sided
    p_corrected: float | None = None  # Holm (pooled: Dunnett) for the primary metric, else Benjamini-Hochberg
    p_sign_flip: float | None = None  # exact; primary metric, from eight pairs
    p_equivalence: float | None = None  # two one-sided tests against the margin, corrected as `p_corrected` is
    correlation: float | None = None  # of variant and baseline over the seeds: what pairing gained
    spread: float | None = None  # sd of the paired differences (in logarithms for a ratio)
    effect: float | None = None  # mean difference / `spread`
    noise_units: float | None = None  # mean difference / sd of the baseline over seeds
    wins: int | None = None  # pairs in which the variant is the better one; None where neither direction is better
    detectable: float | None = None  # smallest effect found with 80 % power, on `scale` (for a ratio, above 1)
    n_needed: int | None = None  # seeds to find the observed difference with 80 % power; None also beyond the search.
    # Both at the level that its correction left this test
    verdict: str = ""  # one of VERDICTS; empty where nothing is tested, and `reason` says why
    reason: str = ""  # in words: what limits the verdict
    exploratory: bool = False  # not the declared primary metric, or fewer than five pairs
    marked: bool = False  # seeds were lost, so the survivors may be the lucky ones
    bold: bool = False  # better, after correction, and nothing to be said against it

    @property
    def note(self) -> str:
        """What limits the verdict: `exploratory; on 4 of 5 seeds`."""
        reason = "" if self.verdict == NOT_COMPARABLE else self.reason
        return "; ".join(filter(None, ("exploratory" if self.exploratory else "", reason)))

    @property
    def said(self) -> str:
        """The verdict with what belongs to it: `not comparable (other data)`, `no clear difference (5 of 12 diverged)`,
        `unfinished (3 of 10 seeds)`."""
        if not self.lost and self.verdict not in (NOT_COMPARABLE, UNFINISHED):
            return self.verdict
        if self.verdict == NOT_COMPARABLE:
            return f"{self.verdict} ({self.reason})"
        if self.verdict == UNFINISHED:
            return f"{self.verdict} ({self.pairs} of {self.expected} seeds)"
        return f"{self.verdict} ({self.share_lost})" if self.verdict and self.share_lost else self.verdict

    @property
    def share_lost(self) -> str:
        """`5 of 12 diverged, baseline: 1 of 12 failed`; empty where nothing was lost for good."""
        return ", ".join(
            f"baseline: {number} of {self.expected} {word.removeprefix('baseline ')}"
            if word.startswith("baseline ")
            else f"{number} of {self.expected} {word}"
            for word, number in self.lost.items()
            if word != TO_COME
        )

    @property
    def words(self) -> str:
        """`said`, and whether it is exploratory; of what is not tested, why: `better (exploratory)`."""
        if not self.verdict:
            return self.reason
        return f"{self.said} (exploratory)" if self.exploratory and self.verdict in FINDINGS else self.said


def replace(cell: Cell, **changes: Any) -> Cell:
    """As `dataclasses.replace`, in a tenth of its time: ten thousand variants have a million changes of a cell.

    TypeError for what is no field.
    """
    if not changes.keys() <= _OF_CELL:
        raise TypeError(f"a cell has no {', '.join(sorted(changes.keys() - _OF_CELL))}")
    made = object.__new__(Cell)
    vars(made).update(vars(cell), **changes)
    return made


_OF_CELL = frozenset(own.name for own in fields(Cell))


@dataclass(frozen=True)
class Row:
    """One variant: the config without its seed."""

    label: str  # unique in the comparison
    variant: str  # short hash of the config without its seed
    study: str
    baseline: str | None  # label of the row it is compared with; None for a baseline, or where there is none
    delta: Mapping[str, tuple[Any, Any]]  # key -> (baseline's value, own value); the keys that differ and no others
    n_planned: int
    n_finished: int
    n_failed: int
    n_diverged: int
    n_missing: int  # planned, running, interrupted, crashed, damaged
    parameters: Number | None
    parameters_difference: Number | None
    flops: Number | None  # forward, per token
    flops_difference: Number | None
    cells: Mapping[Key, Cell]
    values: Mapping[Key, Mapping[int, float]] = field(repr=False, default_factory=dict)  # -> seed -> value
    flags: tuple[str, ...] = ()  # by name: other code, hosts, steps, seeds that were lost
    failures: tuple[str, ...] = ()  # `seed 3 failed: ValueError: ...`
    folders: tuple[Path, ...] = ()  # of its runs, planned ones too
    runs: Mapping[int, Record] = field(repr=False, default_factory=dict)  # seed -> run
    twin: Twin | None = None  # what was solved so that it costs what its baseline costs
    rates: TunedArm | None = None  # what its trials say of the key that was tuned
    at_baseline: Cell | None = None  # the primary metric where it has the value that is best for its baseline

    @property
    def matched(self) -> str | None:
        """In words: what was solved, and what is left between the costs in percent. None where nothing was."""
        return self.twin.words if self.twin else None

    @property
    def residual_percent(self) -> float | None:
        """What is left between the matched cost and the baseline's, in percent of that."""
        return self.twin.residual if self.twin else None

    @property
    def tuned(self) -> str | None:
        """In words: the best value of what was tuned, whether its grid brackets it, and the optimum."""
        return self.rates.words if self.rates else None

    @property
    def trials(self) -> str | None:
        """`5 values x 2 seeds; 1 of 10 diverged`. None where nothing was tuned."""
        return self.rates.trials_words if self.rates else None

    @property
    def sensitivity(self) -> float | None:
        """How much hangs on the tuned value: `TunedArm.sensitivity`, in nats per token."""
        return self.rates.sensitivity if self.rates else None

    @property
    def lacks_baseline(self) -> bool:
        """Whether it was to be compared with another run, and is not: no baseline, unless others have it as one."""
        planned = {(record.run.id, record.run.baseline_id) for record in self.runs.values() if record.run.baseline_id}
        return self.baseline is None and bool(planned) and all(own != base for own, base in planned)

    def cell(self, metric: str, step: int | None = None) -> Cell:
        """The cell of `metric`; an empty one where it was not measured."""
        return self.cells.get((metric, step)) or Cell(metric, step, reason="not measured")

    @property
    def seeds(self) -> str:
        """`5 of 5`, or `3 of 5: 1 failed, 1 diverged`."""
        lost = ((self.n_failed, "failed"), (self.n_diverged, "diverged"), (self.n_missing, "missing"))
        words = ", ".join(f"{number} {word}" for number, word in lost if number)
        return f"{self.n_finished} of {self.n_planned}" + (f": {words}" if words else "")

    @property
    def parameters_percent(self) -> float | None:
        """Parameters against the baseline's, in percent."""
        return percent(self.parameters_difference, self.parameters)

    @property
    def flops_percent(self) -> float | None:
        """Forward FLOPs per token against the baseline's, in percent."""
        return percent(self.flops_difference, self.flops)


@dataclass(frozen=True)
class Comparison:
    """All variants of one or more studies against their baseline."""

    folders: tuple[Path, ...]  # of the studies
    title: str
    question: str
    baseline: str  # its label; empty when there is none or each row names its own
    primary_metric: str  # declared before the runs: the one that is tested with Holm's correction
    metrics: tuple[str, ...]  # that some row has, the primary one first, then as declared
    steps: tuple[int, ...]  # budgets that were asked for (`by="step"`), rising
    step_metrics: tuple[str, ...]  # the metrics that have cells at these steps
    rows: tuple[Row, ...]  # baselines first
    keys: tuple[str, ...]  # config keys in which some row differs from its baseline
    command: tuple[str, ...] = ()  # that planned the study; empty for several studies, or where none is known
    margin: str = ""  # as given: `0.01` in the primary metric's unit, or `1%`
    pooled: str = ""  # what a pooled residual assumes, and what speaks for it here; empty where none is used
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sources: tuple[Source, ...] = field(repr=False, default=())  # what was read: for a look with another baseline

    @property
    def seeds(self) -> tuple[int, ...]:
        """Every seed with a result, rising."""
        found = {seed for row in self.rows for values in row.values.values() for seed in values}
        return tuple(sorted(found))

    @property
    def has_baseline(self) -> bool:
        """Whether any row is compared with another one."""
        return any(row.baseline is not None for row in self.rows)

    @cached_property
    def most_pairs(self) -> int:
        """Seeds that a variant shares with its baseline, at the most, over all that is compared."""
        return max((cell.pairs for cell in self._shown if cell.verdict), default=0)

    @cached_property
    def has_too_few(self) -> bool:
        """Whether some difference lacks nothing but seeds."""
        return any(cell.verdict == TOO_FEW for cell in self._shown)

    @property
    def _shown(self) -> list[Cell]:
        names = {*self.metrics, *self.step_metrics}
        return [cell for row in self.rows for (name, _), cell in row.cells.items() if name in names]

    def row(self, label: str) -> Row:
        """The row called `label`. KeyError when there is none."""
        return {row.label: row for row in self.rows}[label]

    def frame(self) -> pd.DataFrame:
        """The comparison as a tidy table: one line per variant, metric and step, with all the numbers of its cell."""
        import pandas as pd

        from gptlab.comparing.tidy import records

        return pd.DataFrame(list(records(self)))

    @cached_property
    def studies(self) -> tuple[Study, ...]:
        """The studies with all their tables. Read from the files when first asked for."""
        from gptlab.store.study import load_study

        return tuple(load_study(folder) for folder in self.folders)

    @property
    def runs(self) -> pd.DataFrame:
        """`Study.runs` of all studies; column `study` says whose."""
        return self._stacked("runs")

    @property
    def layers(self) -> pd.DataFrame:
        """`Study.layers` of all studies."""
        return self._stacked("layers")

    @property
    def generations(self) -> pd.DataFrame:
        """`Study.generations` of all studies."""
        return self._stacked("generations")

    @property
    def training_steps(self) -> pd.DataFrame:
        """`Study.steps` of all studies: run, label, seed, step, tokens, flops, seconds, metric, value."""
        return self._stacked("steps")

    def _stacked(self, name: str) -> pd.DataFrame:
        import pandas as pd

        frames = [getattr(study, name).assign(study=str(study.folder)) for study in self.studies]
        return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


def percent(difference: Number | None, own: Number | None) -> float | None:
    """`difference` in percent of what it was taken from; None where that is nothing."""
    if difference is None or own is None or own == difference:
        return None
    return 100 * difference / (own - difference)
