"""From folders to verdicts: who is paired with whom, what is refused, and in which words."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from gptlab.comparing.assemble import compare
from gptlab.comparing.caption import caption
from gptlab.comparing.comparison import VERDICTS, Comparison
from gptlab.show.figures import figures
from gptlab.show.figures.style import drawing
from gptlab.show.tables import title
from gptlab.store.study import load_study
from tests.support.refusals import refused
from tests.support.seeded import MANIFEST, Arm, make_seeded
from tests.support.trained import make_trained

SEEDS = range(1, 11)
NOISE = dict(zip(range(1, 31), np.random.default_rng(0).normal(size=30).tolist(), strict=True))
JITTER = dict(zip(range(1, 31), np.random.default_rng(1).normal(size=30).tolist(), strict=True))


def values(shift: float, seeds: Sequence[int] = SEEDS, jitter: float = 0.01) -> dict[int, float | None]:
    return {seed: 3 + shift + 0.1 * NOISE[seed] + (jitter * JITTER[seed] if shift else 0) for seed in seeds}


def arms(shift: float = -0.1, seeds: Sequence[int] = SEEDS, **options: Any) -> list[Arm]:
    return [Arm("none", values(0, seeds)), Arm("relu", values(shift, seeds), {"activation": "relu"}, **options)]


def compared(root: Path, found: Sequence[Arm] | None = None, **options: Any) -> Comparison:
    return compare([make_seeded(root, found or arms())], **options)


def test_the_difference_is_paired_by_seed_and_tested_by_t(tmp_path: Path) -> None:
    cell = compared(tmp_path).row("relu").cell("final_loss")
    own, base = values(-0.1), values(0)
    differences = [own[seed] - base[seed] for seed in SEEDS]  # type: ignore[operator]
    expected = stats.ttest_1samp(differences, 0)
    assert cell.difference == pytest.approx(np.mean(differences))
    assert (cell.low, cell.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert cell.p == pytest.approx(expected.pvalue)
    assert cell.p_corrected == cell.p  # one variant: nothing to correct for
    assert cell.relative == pytest.approx(100 * np.mean(differences) / np.mean(list(base.values())))
    assert cell.noise_units == pytest.approx(np.mean(differences) / np.std(list(base.values()), ddof=1))
    assert cell.correlation is not None and cell.correlation > 0.9
    assert (cell.n, cell.pairs, cell.wins, cell.interval, cell.scale) == (10, 10, 10, "t", "difference")
    assert (cell.verdict, cell.exploratory, cell.bold) == ("better", False, True)
    assert cell.p_sign_flip == pytest.approx(2 / 2**10)
    assert cell.detectable == pytest.approx(0.996 * np.std(differences, ddof=1), rel=1e-3)


def test_the_order_of_seeds_in_the_plan_does_not_matter(tmp_path: Path) -> None:
    mixed = [Arm("none", values(0)), Arm("relu", dict(reversed(values(-0.1).items())), {"activation": "relu"})]
    one = compared(tmp_path / "a").row("relu").cell("final_loss")
    assert compared(tmp_path / "b", mixed).row("relu").cell("final_loss") == one


@pytest.mark.parametrize(
    ("seeds", "shift", "verdict", "words", "exploratory"),
    [
        ([1], -0.1, "too few seeds", "one seed: cannot be told from noise", False),
        ([1, 2], -0.1, "too few seeds", "two seeds: a range, not an interval", False),
        ([1, 2, 3], -0.5, "better", "", True),
        ([1, 2, 3, 4], 0.5, "worse", "", True),
        ([1, 2, 3, 4, 5], -0.5, "better", "", False),
        (SEEDS, 0.5, "worse", "", False),
        (SEEDS, 1e-9, "no clear difference", "", False),
    ],
)
def test_verdicts_by_the_number_of_seeds(
    tmp_path: Path, seeds: Sequence[int], shift: float, verdict: str, words: str, exploratory: bool
) -> None:
    cell = compared(tmp_path, arms(shift, seeds)).row("relu").cell("final_loss")
    assert cell.verdict == verdict in VERDICTS
    assert cell.reason == words
    assert cell.exploratory is exploratory
    assert cell.interval == {1: "", 2: "range"}.get(len(seeds), "t")
    assert (cell.p is None) == (len(seeds) < 3)
    assert (cell.p_sign_flip is None) == (len(seeds) < 8)


def test_holm_counts_the_variants_and_all_else_is_exploratory(tmp_path: Path) -> None:
    shifts = {"a": 0.004, "b": 0.006, "c": 0.008}
    found = [Arm("none", values(0), metrics={"train_loss": 1.0})]
    for place, (label, shift) in enumerate(shifts.items()):
        own = {seed: 3 + shift + 0.1 * NOISE[seed] + 0.01 * NOISE[seed + 7 * (place + 1) % 20 + 1] for seed in SEEDS}
        found.append(Arm(label, own, {"n_layers": 5 + place}, metrics={"train_loss": 1.0}))
    comparison = compared(tmp_path, found)
    cells = [comparison.row(label).cell("final_loss") for label in shifts]
    ps = sorted(cell.p or 0 for cell in cells)
    assert sorted(c.p_corrected or 0 for c in cells) == pytest.approx(
        [3 * ps[0], max(2 * ps[1], 3 * ps[0]), max(ps[2], 2 * ps[1], 3 * ps[0])]
    )
    assert comparison.row("a").cell("train_loss").reason == "the same numbers in every seed"
    assert not any(row.cell("train_loss").bold for row in comparison.rows)


def test_a_secondary_metric_is_exploratory_and_never_bold(tmp_path: Path) -> None:
    folder = make_seeded(tmp_path, arms(-0.5), metric="final_loss", primary_metric="loss")
    cell = compare([folder]).row("relu").cell("final_loss")
    assert (cell.verdict, cell.exploratory, cell.bold) == ("better", True, False)
    assert cell.words == "better (exploratory)"


def test_positive_scale_is_compared_by_ratios(tmp_path: Path) -> None:
    own = {seed: 2 * math.exp(NOISE[seed] + 0.01 * JITTER[seed]) for seed in SEEDS}
    base = {seed: math.exp(NOISE[seed]) for seed in SEEDS}
    folder = make_seeded(tmp_path, [Arm("none", base), Arm("big", own, {"n_layers": 9})], metric="grad_norm")
    cell = compare([folder]).row("big").cell("grad_norm")
    logs = [math.log(own[seed] / base[seed]) for seed in SEEDS]
    assert cell.scale == "ratio"
    assert cell.difference == pytest.approx(math.exp(np.mean(logs)))
    expected = stats.ttest_1samp(logs, 0).confidence_interval()
    assert (cell.low, cell.high) == pytest.approx((math.exp(expected.low), math.exp(expected.high)))
    assert cell.words == cell.verdict == "clear difference"  # neither direction of a gradient norm is better
    assert not cell.bold
    assert cell.wins is None


@pytest.mark.parametrize("bad", [-1.0, 0.0])
def test_a_value_without_a_logarithm_is_not_compared(tmp_path: Path, bad: float) -> None:
    own = {**{seed: 1.0 + seed for seed in SEEDS}, 3: bad}
    folder = make_seeded(tmp_path, [Arm("none", values(0)), Arm("x", own, {"n_layers": 9})], metric="grad_norm")
    assert (
        compare([folder]).row("x").cell("grad_norm").words == "not comparable (a value of zero or below has no ratio)"
    )


def test_what_is_counted_is_never_tested(tmp_path: Path) -> None:
    found = arms(metrics={"parameters": 1100})
    comparison = compared(tmp_path, found)
    row = comparison.row("relu")
    cell = row.cell("parameters")
    assert (cell.difference, cell.relative, cell.p, cell.verdict) == (100, 10.0, None, "")
    assert cell.reason == "counted, not tested"
    assert (row.parameters, row.parameters_difference, row.parameters_percent) == (1100, 100, 10.0)
    assert row.flops_difference == 0
    assert "parameters" not in comparison.metrics


def test_a_winner_with_more_parameters_is_pointed_out_unless_it_has_a_twin(tmp_path: Path) -> None:
    big = Arm("wide", values(-0.5), {"expansion": 8.0}, metrics={"parameters": 1100})
    twin = Arm("matched", values(-0.5), {"expansion": 8.0, "n_layers": 1}, metrics={"parameters": 1005})
    warned = compared(tmp_path / "a", [*arms(), big]).warnings
    assert [text for text in warned if "wide is better with 10.0 % more parameters" in text]
    assert not compared(tmp_path / "b", [*arms(), big, twin]).warnings
    small = Arm("wide", values(-0.5), {"expansion": 8.0}, metrics={"parameters": 1019})
    assert not compared(tmp_path / "c", [*arms(), small]).warnings


def test_lost_seeds_are_counted_and_leave_a_mark(tmp_path: Path) -> None:
    states = {2: "failed", 3: "diverged", 4: "crashed", 5: "planned", 6: "interrupted"}
    comparison = compared(tmp_path, arms(-0.5, states=states))
    row = comparison.row("relu")
    assert (row.n_planned, row.n_finished, row.n_failed, row.n_diverged, row.n_missing) == (10, 5, 1, 1, 3)
    cell = row.cell("final_loss")
    assert (cell.n, cell.pairs, cell.marked, cell.bold) == (6, 6, True, False)  # the diverged one has a number
    assert (cell.verdict, cell.said, cell.p_corrected) == ("unfinished", "unfinished (6 of 10 seeds)", None)
    assert cell.lost == {"failed": 1, "to come": 3}
    assert "seed 2 failed: ValueError: no" in row.failures
    assert "seed 3 diverged" in row.failures
    assert len(row.failures) == 4  # one never started


def test_a_finished_run_whose_training_diverged_counts_as_diverged(tmp_path: Path) -> None:
    assert compared(tmp_path, arms(outcome="diverged")).row("relu").n_diverged == 10


def test_a_value_that_is_not_finite_is_no_value(tmp_path: Path) -> None:
    own = {**values(-0.5), 1: None, 2: None}
    cell = compared(tmp_path, [Arm("none", values(0)), Arm("x", own, {"n_layers": 3})]).row("x").cell("final_loss")
    assert (cell.n, cell.pairs, cell.reason) == (8, 8, "on 8 of 10 seeds")
    nothing = [Arm("none", values(0)), Arm("x", dict.fromkeys(SEEDS, None), {"n_layers": 3})]
    cell = compared(tmp_path / "b", nothing).row("x").cell("final_loss")
    assert cell.words == "not comparable (10 of 10 not finite)"


def test_no_seed_in_common(tmp_path: Path) -> None:
    found = [Arm("none", values(0, [1, 2, 3])), Arm("x", values(-0.5, [4, 5, 6]), {"n_layers": 3})]
    comparison = compare([make_seeded(tmp_path, found)], baseline="none")
    assert comparison.row("x").cell("final_loss").words == "not comparable (no seed in common with the baseline)"


def test_equal_numbers_get_words_instead_of_a_test(tmp_path: Path) -> None:
    same = compared(tmp_path / "a", [Arm("none", values(0)), Arm("x", values(0), {"n_layers": 3})])
    cell = same.row("x").cell("final_loss")
    assert (cell.verdict, cell.reason, cell.p) == ("no clear difference", "the same numbers in every seed", None)
    shifted = {seed: (value or 0) + 0.25 for seed, value in values(0).items()}
    cell = (
        compared(tmp_path / "b", [Arm("none", values(0)), Arm("x", shifted, {"n_layers": 3})])
        .row("x")
        .cell("final_loss")
    )
    assert (cell.verdict, cell.p) == ("not comparable", None)
    assert "no noise to test it by" in cell.words


@pytest.mark.parametrize(
    ("margin", "verdict"), [("0.2", "equivalent within margin"), ("5%", "equivalent within margin"), ("0.05", "better")]
)
def test_a_margin_unlocks_equivalence(tmp_path: Path, margin: str, verdict: str) -> None:
    cell = compared(tmp_path, margin=margin).row("relu").cell("final_loss")
    assert cell.verdict == verdict
    assert not cell.bold or verdict == "better"


@pytest.mark.parametrize("margin", ["0", "-1", "nan", "inf", "x", "%", ""])
def test_a_margin_has_to_be_a_positive_number(tmp_path: Path, margin: str) -> None:
    with refused("margin-not-positive", key="margin", value=margin):
        compared(tmp_path, margin=margin)


def test_a_margin_for_ratios_is_a_percentage(tmp_path: Path) -> None:
    folder = make_seeded(tmp_path, arms(), metric="grad_norm")
    with refused("margin-needs-percentage", key="margin", value="0.1", name="grad_norm"):
        compare([folder], margin="0.1")
    assert compare([folder], margin="20%").row("relu").cell("grad_norm").verdict == "equivalent within margin"


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ({"data_sha256": "e" * 64}, "not comparable (other data)"),
        ({"host": "two"}, "better"),
        ({"git": {"commit": "b" * 40}}, "better"),
        ({"data_sha256": None}, "better"),
    ],
)
def test_unequal_facts_are_refused_or_flagged(tmp_path: Path, manifest: Mapping[str, Any], words: str) -> None:
    comparison = compared(tmp_path, arms(-0.5, manifest=manifest))
    row = comparison.row("relu")
    assert row.cell("final_loss").words == words
    named = {
        "host": "other host than the baseline's: two, baseline one",
        "git": "other code than the baseline's: 0.1.0 bbb",
    }
    for key, text in named.items():
        assert any(flag.startswith(text) for flag in row.flags) == (key in manifest)
        assert any(text in warning for warning in comparison.warnings) == (key in manifest)


def test_times_are_not_compared_across_hosts(tmp_path: Path) -> None:
    here = compared(tmp_path / "a").row("relu").cell("seconds")
    there = compared(tmp_path / "b", arms(manifest={"host": "two"})).row("relu").cell("seconds")
    assert here.verdict != "not comparable"
    assert there.words == "not comparable (other hosts)"
    threads = compared(tmp_path / "c", arms(manifest={"threads": 4})).row("relu").cell("seconds")
    assert threads.words == "not comparable (other number of threads)"


def test_unequal_training_is_not_compared_unless_it_was_asked_about(tmp_path: Path) -> None:
    short = {"steps": 50, "tokens": 500}
    long = {"steps": 100, "tokens": 1000}
    base = Arm("none", values(0), metrics=long)
    own = Arm("x", values(-0.5), {"n_layers": 3}, metrics=short)
    cell = compared(tmp_path / "a", [base, own]).row("x").cell("final_loss")
    assert cell.words == "not comparable (50 steps, baseline 100)"
    half = Arm("x", values(-0.5), {"n_layers": 3}, metrics={**short, "flops_training_per_token": 12000})
    row = compared(tmp_path / "b", [base, half]).row("x")
    assert row.cell("final_loss").verdict == "better"
    assert row.flags == ("matched in compute: 50 steps, baseline 100",)
    asked = Arm("x", values(-0.5), train={"steps": 50}, metrics=short)
    row = compared(tmp_path / "c", [base, asked]).row("x")
    assert row.cell("final_loss").verdict == "better"
    assert row.flags == ("other budget: 50 steps, baseline 100",)


def test_a_budget_in_seconds_is_matched_in_time(tmp_path: Path) -> None:
    def arm(label: str, shift: float, steps: int, seconds: float, **more: Any) -> Arm:
        manifest = {"config": {"train": {"budget": seconds, "budget_unit": "seconds"}}}
        return Arm(label, values(shift), metrics={"steps": steps, "tokens": 64 * steps}, manifest=manifest, **more)

    base = arm("none", 0, 120, 2.0)
    comparison = compared(tmp_path / "a", [base, arm("x", -0.5, 110, 2.0, model={"n_layers": 3})])
    assert comparison.row("x").cell("final_loss").verdict == "better"
    assert comparison.row("x").flags[0].startswith("matched in time: 110 steps, baseline 120 (seed ")
    assert not any("should be the same" in warning for warning in comparison.warnings)
    other = compared(tmp_path / "b", [base, arm("x", -0.5, 110, 1.0, model={"n_layers": 3})])
    assert other.row("x").cell("final_loss").words == "not comparable (110 steps, baseline 120)"


def test_a_leak_is_not_a_win(tmp_path: Path) -> None:
    cell = compared(tmp_path, arms(-2.0, outcome="leaked")).row("relu").cell("final_loss")
    assert cell.words == "not comparable (the variant leaked)"


def test_a_model_that_sees_the_future_is_compared_by_what_it_is_worth_with_a_mask(tmp_path: Path) -> None:
    """On text no entropy is known, so no loss can tell of the leak."""
    seeds = range(1, 7)
    base = Arm("none", {s: 2.2 + 0.01 * s for s in seeds}, {"causal": True})
    own = Arm("no_mask", {s: 2.1 + 0.01 * s for s in seeds}, {"causal": False}, metrics={"final_causal_loss": 2.4})
    row = compared(tmp_path / "a", [base, own], metrics=["final_loss", "final_causal_loss"]).row("no_mask")
    assert row.cell("final_loss").words == "not comparable (the variant sees the future)"
    honest = row.cell("final_causal_loss")
    assert honest.verdict == "worse" and honest.difference == pytest.approx(2.4 - 2.235)
    seeing = Arm("none", base.values, {"causal": False}, metrics={"final_causal_loss": 2.4})
    row = compared(tmp_path / "b", [seeing, Arm("mask", own.values, {"causal": True})]).row("mask")
    assert row.cell("final_loss").words == "not comparable (the baseline sees the future)"


def test_duplicate_seeds_and_mixed_configs_are_refused_by_name(tmp_path: Path) -> None:
    folder = make_seeded(tmp_path / "a", arms())
    plan = json.loads((folder / "plan.json").read_text())
    plan["runs"].append(plan["runs"][-1])
    (folder / "plan.json").write_text(json.dumps(plan))
    with refused("run-occurs-twice", who="relu: seed 10", folder="99e299-s10"):
        compare([folder])
    mixed = [Arm("none", values(0)), Arm("x", {1: 1.0}, {"n_layers": 3}), Arm("x", {2: 1.0}, {"n_layers": 4})]
    mixed_folder = make_seeded(tmp_path / "b", [mixed[0], mixed[1]])
    other = make_seeded(tmp_path / "c", [mixed[2]])
    plan = json.loads((mixed_folder / "plan.json").read_text())
    plan["runs"] += json.loads((other / "plan.json").read_text())["runs"]
    (mixed_folder / "plan.json").write_text(json.dumps(plan))
    (other / plan["runs"][-1]["folder"]).rename(mixed_folder / plan["runs"][-1]["folder"])
    with refused("label-of-two-configs", label="x", keys=["model.n_layers"]):
        compare([mixed_folder])


def test_across_studies_the_same_run_counts_once_and_two_results_are_refused(tmp_path: Path) -> None:
    one = make_seeded(tmp_path, arms(), name="one")
    two = make_seeded(tmp_path, [arms()[0], Arm("norm", values(0.3), {"norm": "rmsnorm"})], name="two")
    comparison = compare([one, two])
    assert [row.label for row in comparison.rows] == ["none", "relu", "norm"]
    assert {row.baseline for row in comparison.rows} == {None, "none"}
    assert comparison.row("none").n_planned == 10
    assert comparison.notes == ("none: 10 runs are in several of the studies with the same numbers, and counted once.",)
    three = make_seeded(tmp_path, [Arm("none", values(0.1))], name="three")
    with refused("run-has-two-results", who="none: seed 1", key="final_loss", studies=[one, three]):
        compare([one, three])


def test_variants_of_one_name_from_two_studies_are_told_apart(tmp_path: Path) -> None:
    one = make_seeded(tmp_path, arms(), name="one")
    other = [Arm("none", values(0), {"n_layers": 9}), Arm("relu", values(0.1), {"n_layers": 9, "activation": "relu"})]
    two = make_seeded(tmp_path, other, name="two")
    comparison = compare([one, two])
    assert [row.label for row in comparison.rows] == ["none (one)", "none (two)", "relu (one)", "relu (two)"]
    assert [row.baseline for row in comparison.rows] == [None, None, "none (one)", "none (two)"]
    with refused("baseline-ambiguous", value="none", allowed=["none (one)", "none (two)"]):
        compare([one, two], baseline="none")
    whole = compare([one, two], baseline="none (one)")
    assert whole.row("relu (two)").delta == {"model.n_layers": (2, 9), "model.activation": ("gelu_tanh", "relu")}


def test_a_variant_with_two_baselines_needs_one_named(tmp_path: Path) -> None:
    one = make_seeded(tmp_path, arms(), name="one")
    two = make_seeded(tmp_path, arms(), name="two", baseline="relu")
    with refused("several-baselines", label="none", allowed=["none", "relu"]):
        compare([one, two])
    assert compare([one, two], baseline="relu").row("none").baseline == "relu"


def test_another_baseline(tmp_path: Path) -> None:
    comparison = compared(tmp_path, baseline="relu")
    assert comparison.baseline == "relu"
    assert comparison.row("none").cell("final_loss").verdict == "worse"
    assert comparison.row("none").delta == {"model.activation": ("relu", "gelu_tanh")}
    with refused("unknown-name", key="baseline", value="rleu", suggestion="relu"):
        compare(comparison.folders, baseline="rleu")


def test_single_runs_can_be_compared(tmp_path: Path) -> None:
    folder = make_seeded(tmp_path, arms(-0.5, seeds=[1, 2, 3]))
    runs = sorted(path for path in folder.iterdir() if path.is_dir())
    comparison = compare(runs)
    assert comparison.baseline == "none"
    assert comparison.row("relu").cell("final_loss").pairs == 3
    (folder / "plan.json").unlink()
    loose = compare([path for path in runs if path.name.endswith(("s1", "s2"))], baseline="none")
    assert loose.row("relu").cell("final_loss").verdict == "too few seeds"
    assert loose.row("relu").delta == {"model.activation": ("gelu_tanh", "relu")}
    assert loose.primary_metric == "final_loss"


def test_one_run_and_no_runs(tmp_path: Path) -> None:
    alone = compared(tmp_path / "a", [Arm("none", {1: 3.0})])
    assert not alone.has_baseline
    assert alone.row("none").cell("final_loss").mean == 3.0
    with refused("not-a-study", damage="plan.json: it lists no runs"):
        compared(tmp_path / "b", [Arm("none", {})])
    with refused("compare-no-such-folder", value=tmp_path / "nowhere"):
        compare([tmp_path / "nowhere"])
    with refused("compare-names-nothing"):
        compare([])
    with refused("named-twice", path=alone.folders[0]):
        compare([*alone.folders, *alone.folders])


def test_times_weigh_nothing_in_the_correction_of_all_else(tmp_path: Path) -> None:
    def corrected(root: Path, **more: float) -> float | None:
        found = arms(metrics={"train_loss": 1.0})
        for arm in found:
            arm.metrics = {**arm.metrics, **more}
        folder = make_seeded(root, found, metric="loss", primary_metric="final_excess")
        return compare([folder]).row("relu").cell("loss").p_corrected

    plain = corrected(tmp_path / "a")
    assert plain
    assert corrected(tmp_path / "b", train_seconds=9.0, tokens_per_second=3.0) == plain
    folder = make_seeded(tmp_path / "c", arms(), metric="train_seconds", primary_metric="final_loss")
    comparison = compare([folder], metrics=["train_seconds"])
    assert comparison.row("relu").cell("train_seconds").p == comparison.row("relu").cell("train_seconds").p_corrected
    assert "timing: depends on the machine and its load" in title(comparison, comparison.metrics[0])


def test_a_time_that_was_declared_primary_says_so(tmp_path: Path) -> None:
    comparison = compare([make_seeded(tmp_path, arms(), metric="train_seconds")])
    assert "primary metric, timing: depends on the machine" in title(comparison, comparison.metrics[0])
    assert "by themselves" not in caption(comparison)


def test_the_caption_names_what_is_corrected_by_itself(tmp_path: Path) -> None:
    folder = make_seeded(tmp_path, [replace(arm, curve=[0, 10, 20]) for arm in arms()])
    assert "by themselves" not in caption(compare([folder]))
    shown = compare([folder], by="step")
    assert "Benjamini-Hochberg (values at training steps by themselves) and exploratory" in caption(shown)
    timed = compare([folder], metrics=["final_loss", "seconds"])
    assert "Benjamini-Hochberg (times by themselves) and exploratory" in caption(timed)


def test_every_compared_metric_has_a_verdict(tmp_path: Path) -> None:
    comparison = compare([make_trained(tmp_path)])
    cells = [row.cell(name) for row in comparison.rows if row.baseline for name in comparison.metrics]
    assert {"grad_norm", "grad_norm_first", "grad_norm_last"} <= set(comparison.metrics)
    assert {cell.verdict for cell in cells} <= set(VERDICTS)


def test_a_closed_form_is_compared_only_where_it_is_asked_for(tmp_path: Path) -> None:
    found = arms()
    for place, arm in enumerate(found):
        arm.metrics = {"initial_loss": 2.0, "initial_loss_expected": 2.0 + place}
    folder = make_seeded(tmp_path, found)
    comparison = compare([folder])
    assert comparison.metrics == ("final_loss", "initial_loss")
    assert comparison.row("relu").cell("initial_loss_expected").reason == "not measured"  # and corrects nothing
    asked = compare([folder], metrics=["initial_loss_expected"])
    assert asked.metrics == ("initial_loss_expected",)
    assert asked.row("relu").cell("initial_loss_expected").difference == 1.0


def test_both_ends_of_the_gradient_are_metrics_like_any_other(tmp_path: Path) -> None:
    folder = make_trained(tmp_path)
    run = next(path for path in folder.iterdir() if (path / "layers.csv").is_file())
    rows = [line.split(",") for line in (run / "layers.csv").read_text().splitlines()]
    norms = [float(row[4]) for row in rows if row[2:4] == ["all", "grad_norm"]]
    metrics = json.loads((run / "result.json").read_text())["metrics"]
    assert (metrics["grad_norm_first"], metrics["grad_norm_last"]) == (norms[0], norms[-1])
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**plan, "primary_metric": "grad_norm_first"}))
    study, comparison = load_study(folder), compare([folder])
    assert "grad_norm_first" in study.runs
    assert comparison.metrics[0] == "grad_norm_first"
    with drawing():
        assert "differences" in dict(figures(study, comparison))


def test_the_history_is_hashed_only_where_it_is_read(tmp_path: Path) -> None:
    found = arms(curve=[0, 10, 20], history_bytes=True)
    folder = make_seeded(tmp_path, [replace(found[0], curve=[0, 10, 20], history_bytes=True), found[1]])
    run = next(path for path in folder.iterdir() if (path / "metrics.jsonl").exists() and path.name.endswith("s7"))
    content = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(content.replace(b"0", b"1"))
    assert sum(row.n_missing for row in compare([folder]).rows) == 0
    comparison = compare([folder], by="step")
    assert [text for row in comparison.rows for text in row.failures] == [
        "seed 7 damaged: metrics.jsonl: not as the run wrote it (its SHA-256 differs from result.json)"
    ]
    (run / "metrics.jsonl").write_bytes(content[:-1])
    assert sum(row.n_missing for row in compare([folder]).rows) == 1


@pytest.mark.parametrize("name", ["layers.csv", "generation.json"])
def test_a_damaged_table_costs_its_run_in_every_comparison(tmp_path: Path, name: str) -> None:
    folder = make_trained(tmp_path)
    run = next(path for path in sorted(folder.iterdir()) if (path / name).is_file())
    (run / name).write_text((run / name).read_text() + " ")
    lost = [text for row in compare([folder]).rows for text in row.failures if "damaged" in text]
    assert len(lost) == 1
    assert f"{name}: not as the run wrote it" in lost[0]


def test_metrics_are_chosen_by_name(tmp_path: Path) -> None:
    folder = make_seeded(tmp_path, arms())
    assert compare([folder], metrics=["seconds"]).metrics == ("seconds",)
    assert compare([folder]).metrics == ("final_loss",)  # times only where they are asked for
    with refused("unknown-name", key="metric", value="finalloss", suggestion="final_loss"):
        compare([folder], metrics=["finalloss"])
    with refused("metric-not-measured", key="metric", value="loss", suggestion=None) as caught:
        compare([folder], metrics=["loss"])
    assert {"parameters", "final_loss", "seconds"} <= {*caught.value.facts["allowed"]}


@pytest.mark.parametrize("name", ["result.json", "config.yaml", "manifest.json"])
def test_a_damaged_file_costs_its_run(tmp_path: Path, name: str) -> None:
    folder = make_seeded(tmp_path, arms())
    path = next(path for path in folder.iterdir() if path.name.endswith("s7")) / name
    path.write_text(path.read_text()[:-9] + "x")
    comparison = compare([folder])
    assert sum(row.n_missing for row in comparison.rows) == 1
    assert comparison.row("relu").cell("final_loss").reason == "on 9 of 10 seeds"
    assert any(name in text for row in comparison.rows for text in row.failures)


def test_budgets_side_by_side(tmp_path: Path) -> None:
    found = arms(curve=[0, 10, 20, 50, 100, 101])
    found[0].curve = [0, 10, 20, 50, 100]
    comparison = compared(tmp_path, found, by="step")
    assert comparison.steps == (10, 20, 50, 100)
    assert comparison.step_metrics == ("validation_loss",)
    cell = comparison.row("relu").cell("validation_loss", 50)
    assert (cell.verdict, cell.exploratory, cell.step) == ("better", True, 50)
    assert comparison.row("relu").cell("final_loss").exploratory is False
    with refused("by-step-untrained"):
        compared(tmp_path / "b", by="step")
    with refused("unknown-name", key="by", value="stp", suggestion="step"):
        compared(tmp_path / "c", by="stp")


def test_at_the_same_step_budgets_do_not_matter(tmp_path: Path) -> None:
    found = [
        Arm("none", values(0), metrics={"steps": 100}, curve=[10, 50, 100]),
        Arm("x", values(-0.5), {"n_layers": 3}, metrics={"steps": 50}, curve=[10, 50]),
    ]
    row = compared(tmp_path, found, by="step").row("x")
    assert row.cell("validation_loss", 50).verdict == "better"
    assert row.cell("final_loss").verdict == "not comparable"


def test_a_count_that_depends_on_the_seed_is_pointed_out(tmp_path: Path) -> None:
    folder = make_seeded(tmp_path, arms())
    path = next(path for path in folder.iterdir() if path.name.endswith("s7")) / "result.json"
    result = json.loads(path.read_text())
    result["metrics"]["parameters"] = 999
    path.write_text(json.dumps(result))
    assert "parameters should be the same in every seed" in " ".join(compare([folder]).warnings)


def test_reading_writes_nothing(tmp_path: Path) -> None:
    folder = make_seeded(tmp_path, arms(curve=[1, 2]))
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    compare([folder])
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert MANIFEST["host"] == "one"
