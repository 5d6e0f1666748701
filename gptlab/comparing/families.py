"""Corrections over families of tests. A family is what was planned, however many of its tests have numbers yet.

The primary metric was declared before the runs: Holm over the variants that were planned (or Dunnett, where their noise
is pooled). All else is looked at because it is there: Benjamini and Hochberg over everything else, for all planned
variants, and marked exploratory. Values at budgets of training and times are families of their own, so that a look at
them changes no other verdict. A variant whose runs are still to come enters no correction, and its place is kept: so a
finding stays one when the others arrive.
"""

from __future__ import annotations

from collections.abc import Sequence

from gptlab.comparing import evidence
from gptlab.comparing import statistics as stats
from gptlab.comparing.by_budget import AT_STEPS
from gptlab.comparing.comparison import UNFINISHED, Key, replace
from gptlab.comparing.variants import Variant
from gptlab.comparing.which_metrics import declared

PRIMARY = "primary"
Place = tuple[Variant, Key]


def correct(variants: Sequence[Variant], primary: str) -> None:
    """Give every cell its corrected p and its verdict."""
    compared = [variant for variant in variants if variant.base]
    same = {place: of for variant in compared for place, of in _same_numbers(variant).items()}
    families: dict[str, list[Place]] = {}
    for variant in compared:
        for key, cell in variant.cells.items():
            if cell.p is not None and (variant.key, key) not in same:
                families.setdefault(_family(key, primary), []).append((variant, key))
    for name, places in families.items():
        metrics = len({key for _, key in places})
        _correct(places, primary=name == PRIMARY, size=metrics * len(compared))
    for variant in compared:
        for key in variant.cells:
            if of := same.get((variant.key, key)):
                variant.cells[key] = replace(variant.cells[of], metric=key[0], step=key[1])


def _family(key: Key, primary: str) -> str:
    metric, step = key
    if step is not None:
        return "steps"
    return (
        PRIMARY if metric == primary else declared(metric).kind if declared(metric).kind == "timing" else "exploratory"
    )


def _correct(places: Sequence[Place], *, primary: bool, size: int) -> None:
    waiting: list[Place] = []
    tested: list[Place] = []
    for variant, key in places:
        (waiting if variant.cells[key].verdict == UNFINISHED else tested).append((variant, key))
    adjust = stats.holm if primary else stats.benjamini_hochberg
    cells = [variant.cells[key] for variant, key in tested]
    corrected = adjust([cell.p for cell in cells if cell.p is not None], size)
    equivalent = [cell.p_equivalence for cell in cells if cell.p_equivalence is not None]
    within = iter(stats.holm(equivalent, size))
    for (variant, key), cell, p in zip(tested, cells, corrected, strict=True):
        variant.cells[key] = replace(
            cell,
            p_corrected=p if cell.p_corrected is None else cell.p_corrected,  # a pooled one is corrected already
            p_equivalence=None if cell.p_equivalence is None else next(within),
        )
    for variant, key in places:
        variant.cells[key] = evidence.decided(variant.cells[key], declared(key[0]), primary=primary, size=size)


def _same_numbers(variant: Variant) -> dict[tuple[str, Key], Key]:
    """The end of a curve -> the run's own number, where they are one number on both sides: it has one verdict."""
    found: dict[tuple[str, Key], Key] = {}
    assert variant.base
    for final, curve in AT_STEPS.items():
        ends = [variant.values.get((final, None), {}), variant.base.values.get((final, None), {})]
        for key in variant.cells:
            if key[0] == curve and key[1] is not None and (final, None) in variant.cells and all(ends):
                at_step = [variant.values.get(key, {}), variant.base.values.get(key, {})]
                if at_step == ends:
                    found[variant.key, key] = (final, None)
    return found
