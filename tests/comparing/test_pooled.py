"""One spread for all arms: against scipy's Dunnett and ANOVA, its error rate by simulation, and what it says."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from gptlab.cli import main
from gptlab.comparing.assemble import compare
from gptlab.comparing.dunnett import dunnett, residual
from tests.support.refusals import refused
from tests.support.seeded import Arm, make_seeded


def study(root: Path, seeds: int, *, sds: tuple[float, ...] = (0.05,) * 5, shift: float = -0.15) -> Path:
    """A baseline and one variant for each s.d.; seeds move all arms alike, and the first variant is better."""
    random = np.random.default_rng(3)
    common = random.normal(size=seeds)
    arms = []
    for place, sd in enumerate((sds[0], *sds)):
        values = 3 + common + sd * random.normal(size=seeds) + (shift if place == 1 else 0)
        model = {"n_layers": 2 + place} if place else {}
        arms.append(Arm(f"v{place}" if place else "none", dict(enumerate(values.tolist(), 1)), model))
    return make_seeded(root, arms)


@pytest.mark.parametrize(("variants", "n"), [(1, 5), (3, 4), (5, 3), (8, 10)])
def test_dunnett_is_scipys(variants: int, n: int) -> None:
    """scipy's arms are independent groups: other degrees of freedom, the same distribution."""
    values = np.random.default_rng(variants).normal(size=(variants + 1, n))
    values[1] += 1.2
    expected = stats.dunnett(*values[1:], control=values[0], random_state=1)
    df = (variants + 1) * (n - 1)
    sd = math.sqrt(((values - values.mean(axis=1, keepdims=True)) ** 2).sum() / df)
    found = [dunnett((row.mean() - values[0].mean()) / (sd * math.sqrt(2 / n)), variants, df) for row in values[1:]]
    assert found == pytest.approx(expected.pvalue.tolist(), abs=1e-3)  # scipy integrates by chance


@pytest.mark.parametrize("df", [2, 4, 20, 500])
def test_one_variant_is_students_t(df: int) -> None:
    for t in (0.0, 0.5, 2.0, -4.0, 12.0):
        assert dunnett(t, 1, df) == pytest.approx(2 * special.stdtr(df, -abs(t)), rel=1e-6, abs=1e-12)


def test_the_residual_is_that_of_a_two_way_analysis_of_variance() -> None:
    values = np.random.default_rng(0).normal(size=(4, 6)) + np.arange(6) * 10 + np.arange(4)[:, None]
    found = residual(values.tolist())
    assert found is not None
    arms, seeds = np.indices(values.shape)
    design = np.column_stack([*(arms.ravel() == a for a in range(4)), *(seeds.ravel() == s for s in range(1, 6))])
    _, squares, *_ = np.linalg.lstsq(design.astype(float), values.ravel(), rcond=None)
    assert found.df == 15
    assert found.sd == pytest.approx(math.sqrt(float(squares[0]) / 15))
    assert residual([[1.0], [2.0]]) is None
    assert residual([[1.0, 2.0]]) is None


def test_the_family_wise_error_of_paired_arms_is_five_percent() -> None:
    """2,000 studies of five null variants with three seeds that move all arms alike."""
    random = np.random.default_rng(1)
    critical = _critical(5, 10)
    assert dunnett(critical, 5, 10) == pytest.approx(0.05, abs=1e-6)
    wrong = 0
    for _ in range(2_000):
        arms = random.normal(size=3) * 3 + random.normal(size=(6, 3))
        found = residual(arms.tolist())
        assert found is not None
        wrong += float(np.abs(arms[1:].mean(axis=1) - arms[0].mean()).max()) / found.error > critical
    assert wrong / 2_000 == pytest.approx(0.05, abs=0.0145)  # three standard errors


def _critical(variants: int, df: int) -> float:
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if dunnett(middle, variants, df) > 0.05 else (low, middle)
    return low


def test_few_seeds_find_what_pairs_alone_do_not(tmp_path: Path) -> None:
    folder = study(tmp_path, 3)
    plain, pooled = compare([folder]), compare([folder], pooled=True)
    assert plain.row("v1").cell("final_loss").verdict == "no clear difference"
    cell = pooled.row("v1").cell("final_loss")
    assert (cell.verdict, cell.exploratory, cell.interval) == ("better", True, "t")  # three seeds are three seeds
    assert cell.difference == plain.row("v1").cell("final_loss").difference
    values = [list(row.values["final_loss", None].values()) for row in pooled.rows]
    found = residual(values)
    assert found is not None and found.df == 10
    assert cell.p_corrected == pytest.approx(dunnett((cell.difference or 0) / found.error, 5, 10))
    assert (cell.low, cell.n_needed, cell.detectable) == (
        pytest.approx((cell.difference or 0) - stats.t.ppf(0.975, 10) * found.error), None, None
    )  # fmt: skip
    assert "10 degrees of freedom) over 6 arms and 3 seeds" in pooled.pooled
    assert not plain.pooled


def test_two_seeds_of_many_arms_can_be_tested(tmp_path: Path) -> None:
    folder = study(tmp_path, 2, shift=-3.0)
    assert compare([folder]).row("v1").cell("final_loss").verdict == "too few seeds"
    cell = compare([folder], pooled=True).row("v1").cell("final_loss")
    assert (cell.verdict, cell.exploratory) == ("better", True)


def test_what_it_assumes_is_said_with_what_the_study_says_about_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = study(tmp_path, 5, sds=(0.01, 0.01, 0.3))
    assert main(["compare", str(folder), "--pooled"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "It assumes that all arms are equally noisy and that a seed moves all of them alike" in out
    assert "far from equal: read the tables without --pooled too" in out
    assert "final_loss by Dunnett over the planned variants" in out
    assert main(["compare", "--diff", "--pooled", str(folder), str(folder)]) == 2


def test_a_pool_takes_two_complete_variants(tmp_path: Path) -> None:
    folder = study(tmp_path, 5, sds=(0.05,))
    with refused("pooled-needs-variants", variants=1, baselines=1):
        compare([folder], pooled=True)
