"""What a verdict promises, over 2,000 synthetic studies: with seeds that diverged, and stopped half way.

Each study goes through the code that gives verdicts: cells, families, decisions; only files are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from gptlab.comparing import evidence, families, lost_seeds
from gptlab.comparing.comparison import BETTER, FINDINGS, UNFINISHED, Cell
from gptlab.comparing.variants import Variant
from gptlab.comparing.which_metrics import declared
from gptlab.store.records import Provenance, Record
from gptlab.store.study_plan import PlanEntry, StoredPlan
from gptlab.store.study_sources import Source

STUDIES, VARIANTS, SEEDS = 2_000, 5, 10
METRIC, KEY = "final_loss", ("final_loss", None)
SOURCE = Source(Path(), StoredPlan("", "", (), "", METRIC, ()), ())
Numbers = npt.NDArray[np.float64]


def verdicts(losses: Numbers, states: npt.NDArray[np.str_]) -> list[Cell]:
    """The primary cells of a study. `losses`, `states`: (1 + variants, seeds), the baseline first; NaN: no number."""
    arms = [_arm(place, losses[place], states[place]) for place in range(len(losses))]
    for variant in arms[1:]:
        base = variant.base = arms[0]
        own, its = variant.values[KEY], base.values[KEY]
        lost = lost_seeds.of_pairs(variant.runs, base.runs, own.keys() & its.keys(), METRIC)
        variant.cells[KEY] = evidence.compared(
            declared(METRIC), None, own, its, expected=losses.shape[1], lost=lost, primary=True
        )
    families.correct(arms, METRIC)
    return [variant.cells[KEY] for variant in arms[1:]]


def _arm(place: int, losses: Numbers, states: npt.NDArray[np.str_]) -> Variant:
    runs, values = {}, {}
    for seed, (loss, state) in enumerate(zip(losses.tolist(), states.tolist(), strict=True), 1):
        number = {METRIC: loss} if math.isfinite(loss) and state in ("finished", "diverged") else {}
        values |= {seed: number[METRIC]} if number else {}
        entry = PlanEntry(f"{place}/{seed}", str(place), seed, "")
        runs[seed] = Record(Path(), entry, state, "", "", number, (), str(place), Provenance(), {})
    return Variant(str(place), str(place), SOURCE, runs, values={KEY: values})


def studies(draw: Callable[[np.random.Generator], tuple[Numbers, npt.NDArray[np.str_]]]) -> list[list[Cell]]:
    random = np.random.default_rng(7)
    return [verdicts(*draw(random)) for _ in range(STUDIES)]


def null(random: np.random.Generator, sd: float = 0.7) -> Numbers:
    """Arms that differ in nothing; a seed moves all of them alike."""
    return 3 + random.normal(size=(1, SEEDS)) + sd * random.normal(size=(1 + VARIANTS, SEEDS))


def finished(losses: Numbers) -> npt.NDArray[np.str_]:
    return np.full(losses.shape, "finished", dtype="<U12")


def share(found: list[list[Cell]], words: tuple[str, ...]) -> float:
    """Of all studies, those in which any variant got one of `words`."""
    return sum(any(cell.verdict in words for cell in cells) for cells in found) / len(found)


LIMIT = 0.05 + 2 * math.sqrt(0.05 * 0.95 / STUDIES)


@pytest.mark.slow
def test_null_variants_are_rarely_found_whatever_becomes_of_their_seeds() -> None:
    """Whole studies; and such in which the worst seeds diverged without a number, which would flatter the survivors."""

    def whole(random: np.random.Generator) -> tuple[Numbers, npt.NDArray[np.str_]]:
        losses = null(random)
        return losses, finished(losses)

    def survivors(random: np.random.Generator) -> tuple[Numbers, npt.NDArray[np.str_]]:
        """A variant's seed diverges where its own noise is bad: those that remain are better than they are."""
        common, own = random.normal(size=(1, SEEDS)), 0.7 * random.normal(size=(1 + VARIANTS, SEEDS))
        states = np.where(own > 0.7, "diverged", "finished")
        states[0] = "finished"
        return np.where(states == "diverged", np.nan, 3 + common + own), states

    assert share(studies(whole), FINDINGS) <= LIMIT
    dropped = studies(survivors)
    assert share(dropped, FINDINGS) <= LIMIT
    lucky = [[cell for cell in cells if cell.lost] for cells in dropped]
    assert share(lucky, (BETTER,)) == 0.0
    # The test can fail: by the corrected p of the survivors alone, too many would be better.
    blind = [any(c.p_corrected is not None and c.p_corrected < 0.05 for c in cells) for cells in dropped]
    assert sum(blind) / STUDIES > LIMIT


@pytest.mark.slow
def test_looking_into_a_study_half_way_finds_no_more() -> None:
    """Variants finish one after the other and somebody looks each time: any finding, at any look, counts."""

    def looks(random: np.random.Generator) -> list[list[Cell]]:
        losses, found = null(random), []
        for done in range(1, VARIANTS + 1):
            states = finished(losses)
            states[done + 1 :, SEEDS // 2 :] = "planned"
            found.append(verdicts(losses, states))
        return found

    random = np.random.default_rng(11)
    ever, taken_back = 0, 0
    for _ in range(STUDIES):
        history = looks(random)
        hits = [[cell.verdict in FINDINGS for cell in cells] for cells in history]
        ever += any(any(cells) for cells in hits)
        taken_back += any(a and not b for one, two in pairwise(hits) for a, b in zip(one, two, strict=True))
        assert all(cell.verdict == UNFINISHED for cell in history[0][1:])
    assert ever / STUDIES <= LIMIT
    assert taken_back == 0


@pytest.mark.slow
def test_intervals_cover_what_they_claim_also_with_diverged_seeds() -> None:
    """A difference of 0.4, arms of other noise; seeds lost by chance, and finite losses of runs that diverged kept."""
    truth = 0.4

    def draw(random: np.random.Generator) -> tuple[Numbers, npt.NDArray[np.str_]]:
        sds = np.array([0.5, 0.2, 0.5, 1.0, 2.0, 0.5])[:, None]
        losses = 3 + random.normal(size=(1, SEEDS)) + sds * random.normal(size=(1 + VARIANTS, SEEDS))
        losses[1:] += truth
        states = np.where(random.uniform(size=losses.shape) < 0.1, "diverged", "finished")
        return np.where((states == "diverged") & (random.uniform(size=losses.shape) < 0.5), np.nan, losses), states

    cells = [cell for study in studies(draw) for cell in study if cell.interval == "t"]
    covered = [cell.low <= truth <= cell.high for cell in cells if cell.low is not None and cell.high is not None]
    assert len(covered) > 9 * STUDIES // 2
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)
