"""A verdict is about what was planned: no seed leaves by its result, and no family shrinks to its survivors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gptlab.comparing.assemble import compare
from gptlab.comparing.comparison import Cell
from tests.support.seeded import Arm, make_seeded

SEEDS = range(1, 13)
NOISE = {seed: ((seed * 7919) % 13 - 6) / 100 for seed in SEEDS}
JITTER = {seed: ((seed * 104_729) % 11 - 5) / 100 for seed in SEEDS}


def values(shift: float, jitter: float = 0.1) -> dict[int, float | None]:
    return {seed: 3 + NOISE[seed] + shift + jitter * JITTER[seed] * (shift != 0) for seed in SEEDS}


def cell_of(root: Path, own: Arm, base: Arm | None = None, metric: str = "final_loss", **options: Any) -> Cell:
    folder = make_seeded(root, [base or Arm("none", values(0)), own], metric=metric)
    return compare([folder], **options).row(own.label).cell(metric)


def arm(shift: float, lost: Mapping[int, str] | None = None, number: float | None = None, **more: Any) -> Arm:
    """Seeds in `lost` ended in that state, with `number` as their result."""
    found = values(shift)
    states = lost or {}
    return Arm("x", {s: number if s in states else v for s, v in found.items()}, {"n_layers": 3}, states=states, **more)


DIVERGED = dict.fromkeys(range(1, 6), "diverged")


def test_a_finite_loss_stays_also_of_a_run_that_diverged(tmp_path: Path) -> None:
    """Left out, the two worst seeds would flatter the rest."""
    cell = cell_of(tmp_path, arm(-0.5, {1: "diverged", 2: "diverged"}, number=9.0))
    assert (cell.n, cell.pairs, dict(cell.lost), cell.marked) == (12, 12, {}, False)
    assert cell.mean == pytest.approx(sum([9.0, 9.0, *list(values(-0.5).values())[2:]]) / 12)
    assert cell.verdict == "no clear difference"


def test_a_variant_that_diverged_on_five_of_twelve_seeds_is_not_better(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, arm(-0.5, DIVERGED))
    assert (cell.n, cell.pairs, dict(cell.lost), cell.bold) == (7, 7, {"diverged": 5}, False)
    assert cell.p_corrected is not None and cell.p_corrected < 0.001
    assert cell.words == "no clear difference (5 of 12 diverged)"
    assert cell.reason == "on 7 of 12 seeds"


def test_what_is_worse_even_without_the_seeds_that_diverged_is_worse(tmp_path: Path) -> None:
    assert cell_of(tmp_path / "a", arm(0.5, DIVERGED)).words == "worse (5 of 12 diverged)"
    # Of a failure nobody knows whom it flatters; and a baseline without its worst seeds makes variants look worse.
    assert cell_of(tmp_path / "b", arm(0.5, {1: "failed"})).words == "no clear difference (1 of 12 failed)"
    base = Arm("none", {**values(0), 3: None}, states={3: "diverged"})
    words = "no clear difference (baseline: 1 of 12 diverged)"
    assert cell_of(tmp_path / "c", arm(0.5), base).words == words
    assert cell_of(tmp_path / "d", arm(-0.5), base).words == words


def test_no_equivalence_and_no_clear_difference_on_survivors(tmp_path: Path) -> None:
    near = cell_of(tmp_path / "a", arm(0.001, {1: "diverged"}), margin=0.2)
    assert near.p_equivalence is not None and near.p_equivalence < 0.05
    assert near.words == "no clear difference (1 of 12 diverged)"
    whole = cell_of(tmp_path / "b", arm(0.001), margin=0.2)
    assert whole.verdict == "equivalent within margin"
    gradient = cell_of(tmp_path / "c", arm(1.0, {1: "diverged"}), metric="grad_norm")
    assert gradient.words == "no clear difference (1 of 12 diverged)"


def test_where_all_seeds_diverged_nothing_is_compared(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, arm(-0.5, dict.fromkeys(SEEDS, "diverged")))
    assert cell.words == "not comparable (12 of 12 diverged)"


def test_a_value_that_is_not_finite_is_lost_by_that_name(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, Arm("x", {**values(-0.5), 4: None}, {"n_layers": 3}))
    assert cell.words == "no clear difference (1 of 12 not finite)"


@pytest.mark.parametrize("state", ["planned", "crashed", "interrupted"])
def test_runs_to_come_leave_the_verdict_open(tmp_path: Path, state: str) -> None:
    cell = cell_of(tmp_path, arm(-0.5, {12: state}))
    assert (cell.words, cell.p_corrected, cell.bold) == ("unfinished (11 of 12 seeds)", None, False)
    assert cell.p is not None and cell.low is not None  # the numbers so far stay in sight


def test_two_planned_seeds_lack_seeds_before_they_lack_an_end(tmp_path: Path) -> None:
    two = {1: 3.0, 2: 3.1}
    own = Arm("x", {1: 2.0, 2: 2.2}, {"n_layers": 3}, states={2: "planned"})
    assert cell_of(tmp_path, own, Arm("none", two)).verdict == "too few seeds"


def test_a_finding_of_a_study_half_way_stays_one_to_the_end(tmp_path: Path) -> None:
    """None of the first variant's runs changes; by the survivors alone its p would be 0.03, and 0.06 in the end."""
    first = Arm("first", values(0.0075, 2.0), {"n_layers": 3})
    found = []
    for name, state in (("half", "planned"), ("whole", "finished")):
        second = Arm("second", values(0.02, 8.0), {"n_layers": 4}, states=dict.fromkeys(range(4, 13), state))
        folder = make_seeded(tmp_path / name, [Arm("none", values(0)), first, second])
        found.append(compare([folder]))
    half, whole = (comparison.row("first").cell("final_loss") for comparison in found)
    assert half.p == whole.p
    assert half.p_corrected == pytest.approx(2 * (half.p or 0))
    assert whole.p_corrected is not None and half.p_corrected is not None
    assert whole.p_corrected <= half.p_corrected
    assert found[0].row("second").cell("final_loss").verdict == "unfinished"


def test_a_variant_without_a_p_keeps_its_place_in_the_family(tmp_path: Path) -> None:
    """It was planned; that its values cannot be tested makes the others no surer."""
    first = Arm("first", values(0.0075, 2.0), {"n_layers": 3})
    same = Arm("same", values(0), {"n_layers": 4})
    comparison = compare([make_seeded(tmp_path, [Arm("none", values(0)), first, same])])
    cell = comparison.row("first").cell("final_loss")
    assert cell.p_corrected == pytest.approx(2 * (cell.p or 0))


def test_seeds_needed_do_not_contradict_the_verdict_beside_them(tmp_path: Path) -> None:
    """At the uncorrected level twelve seeds would do; the verdict is that of the corrected one."""
    arms = [Arm(f"v{place}", values(0.006 * place, 1.0), {"n_layers": 3 + place}) for place in range(1, 9)]
    comparison = compare([make_seeded(tmp_path, [Arm("none", values(0)), *arms])])
    cells = [comparison.row(arm.label).cell("final_loss") for arm in arms]
    assert {cell.verdict for cell in cells} == {"worse", "no clear difference"}
    for cell in cells:
        assert cell.n_needed is not None and cell.detectable is not None and cell.difference is not None
        if cell.verdict == "no clear difference":
            assert cell.n_needed > cell.pairs
        assert (cell.n_needed <= cell.pairs) == (abs(cell.difference) >= cell.detectable)


def test_the_last_step_and_the_final_loss_are_one_number_with_one_verdict(tmp_path: Path) -> None:
    curve = [10, 20, 50, 100]
    own = Arm("x", values(-0.5), {"n_layers": 3}, curve=curve, curve_ends_in_value=True)
    found = [Arm("none", values(0), curve=curve, curve_ends_in_value=True), own]
    comparison = compare([make_seeded(tmp_path, found)], by="step")
    row = comparison.row("x")
    final, last = row.cell("final_loss"), row.cell("validation_loss", 100)
    assert row.values["final_loss", None] == row.values["validation_loss", 100]
    assert (last.verdict, last.exploratory, last.p_corrected, last.bold) == ("better", False, final.p_corrected, True)
    assert row.cell("validation_loss", 50).exploratory


def test_pairs_that_were_scored_on_other_rows_are_not_comparable(tmp_path: Path) -> None:
    base = Arm("none", values(0), scored={"rows": "a" * 64, "heldout": {"rows": "c" * 64}})
    other = arm(-0.5, scored={"rows": "b" * 64, "heldout": {"rows": "c" * 64}})
    assert cell_of(tmp_path / "a", other, base).words == "not comparable (other validation rows)"
    assert cell_of(tmp_path / "b", arm(-0.5, scored=base.scored), base).verdict == "better"
    assert cell_of(tmp_path / "c", arm(-0.5), base).verdict == "better"  # an older run does not say
    # The rows at the end are the same, and a loss before training is of no validation row.
    assert cell_of(tmp_path / "d", other, base, metric="heldout_loss").verdict == "better"
    assert cell_of(tmp_path / "e", other, base, metric="loss").verdict == "clear difference"
    ends = arm(-0.5, scored={"rows": "a" * 64, "heldout": {"rows": "d" * 64}})
    assert cell_of(tmp_path / "f", ends, base, metric="heldout_loss").words == "not comparable (other held-out rows)"


def test_what_did_not_learn_counts_and_is_said(tmp_path: Path) -> None:
    folder = make_seeded(tmp_path, [Arm("none", values(0)), arm(0.5, outcome="did not learn")])
    row = compare([folder]).row("x")
    assert (row.cell("final_loss").verdict, row.n_diverged) == ("worse", 0)
    assert row.flags == (f"did not learn: seeds {', '.join(map(str, SEEDS))}",)


def test_the_planned_margin_is_that_of_the_table_unless_another_is_given(tmp_path: Path) -> None:
    folder = make_seeded(tmp_path, [Arm("none", values(0)), arm(0.01)], margin="0.2")
    assert compare([folder]).row("x").cell("final_loss").verdict == "equivalent within margin"
    assert compare([folder]).margin == "0.2"
    assert compare([folder], margin="0.001").row("x").cell("final_loss").verdict == "worse"
