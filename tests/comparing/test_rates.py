"""What the trials of a tuning say: optima, sensitivity, the verdict at the baseline's value; against closed forms."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from gptlab.cli import main
from gptlab.comparing import statistics as stats
from gptlab.comparing.assemble import compare
from gptlab.comparing.naming import named_study
from gptlab.comparing.rates.arms import TunedArm
from gptlab.comparing.rates.optimum import optimum
from gptlab.show.figures.rates import rates_figure
from gptlab.store.study import load_study
from gptlab.tuned import Outcome, Trial, best_place, grid
from tests.support.seeded import Arm, make_seeded
from tests.support.tuned import INITIAL, bowl, record, tuned_study, write_trials

SEEDS = range(1, 6)
RATES = grid(0.01, 2.0, 5)


def trials(losses: np.ndarray, values: tuple[float, ...] = RATES) -> list[Trial]:
    """`losses` (seeds, values); what is not finite diverged."""
    return [
        Trial(
            value, {seed: Outcome(float(x), not math.isfinite(x), INITIAL, float(x)) for seed, x in enumerate(column)}
        )
        for value, column in zip(values, losses.T, strict=True)
    ]


def curve(center: float, curvature: float = 0.1) -> np.ndarray:
    return 3 + curvature * np.log(np.asarray(RATES) / center) ** 2


def test_the_bottom_of_a_parabola_is_found_exactly() -> None:
    for center in (0.007, 0.01, 0.013, 0.02):
        losses = np.stack([curve(center), curve(center) + 0.5])  # a seed that is worse everywhere moves nothing
        found = optimum(trials(losses), lower=True)
        assert found and found.value == pytest.approx(center)
        assert found.low == pytest.approx(center, rel=1e-5) and found.high == pytest.approx(center, rel=1e-5)
        turned = optimum(trials(-losses), lower=False)
        assert turned and turned.value == pytest.approx(center)


def test_one_seed_is_a_polynomial_of_the_second_degree() -> None:
    losses = curve(0.012) + np.array([0.01, -0.02, 0.0, 0.03, -0.01])
    bend, slope, _ = np.polyfit(np.log(np.asarray(RATES)), losses, 2)
    found = optimum(trials(losses[None]), lower=True)
    assert found and found.value == pytest.approx(math.exp(-slope / (2 * bend)))
    assert found.low and found.high and found.low < found.value < found.high


def test_no_optimum_without_a_valley() -> None:
    assert optimum(trials(np.array([[1.0, 2.0, 3.0, 4.0, 5.0]])), lower=True) is None
    assert optimum(trials(np.array([[5.0, 4.0, 3.0, 1.0, math.inf]])), lower=True) is None  # nothing on the right
    three = optimum(trials(np.array([[math.inf, 2.0, 1.0, 2.0, math.inf]])), lower=True)
    assert three and (three.value, three.low, three.high) == (pytest.approx(0.01), None, None)
    noise = optimum(trials(np.array([[1.0, 1.3, 0.9, 1.2, 1.0], [1.3, 0.9, 0.9, 1.0, 1.2]])), lower=True)
    assert noise is None or noise.low is None  # flat: the interval has no ends


def test_the_interval_covers_the_optimum() -> None:
    draw = np.random.default_rng(3)
    covered, told = 0, 0
    for _ in range(400):
        center = float(np.exp(draw.uniform(-0.3, 0.3))) * 0.01
        noise = draw.normal(0, 0.02, (2, 5)) + draw.normal(0, 0.3, (2, 1))  # seeds differ more than values
        found = optimum(trials(curve(center) + noise), lower=True)
        if found and found.low and found.high:
            told += 1
            covered += found.low <= center <= found.high
    assert told > 350
    assert abs(covered / told - 0.95) < 0.035


def test_sensitivity_is_the_mean_above_the_best_and_no_more_than_before_training() -> None:
    losses = np.array([[3.5, 3.0, 2.0, math.inf, 9.0], [3.7, 3.2, 2.0, 3.0, 3.0]])
    arm = TunedArm("train.learning_rate", tuple(trials(losses)), 0.01, True, 2)
    means = [3.6, 3.1, 2.0, (INITIAL + 3.0) / 2, (INITIAL + 3.0) / 2]
    assert arm.sensitivity == pytest.approx(sum(means) / 5 - 2.0)
    assert (arm.best, arm.edge, arm.lost, arm.runs) == (0.01, False, 1, 10)
    waiting = TunedArm("train.learning_rate", (*arm.trials[:4], Trial(0.04, {})), None, True, 2)
    assert (waiting.sensitivity, waiting.best, waiting.optimum) == (None, None, None)
    flat = TunedArm("train.learning_rate", tuple(trials(np.full((2, 5), 3.0))), 0.0025, True, 2)
    assert flat.sensitivity == 0


def arm(label: str, shift: float, rate: float) -> Arm:
    values = {seed: 3 + shift + seed / 50 + (label != "none") * (seed % 3) / 100 for seed in SEEDS}
    return Arm(label, values, {} if label == "none" else {"n_layers": 3 + len(label)}, train={"learning_rate": rate})


CURVES = {"none": bowl(), "x": bowl(0.02), "yy": bowl()}
CHOSEN = {"none": 0.01, "x": 0.02, "yy": 0.01}
CONTROL = {1: 3.21, 2: 3.22, 3: 3.25, 4: 3.26, 5: 3.31}  # of x at the rate of `none`


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """x is better at its own rate and worse at the baseline's; yy has the baseline's."""
    tune = record(CURVES, CHOSEN)
    control = Arm("x+learning_rate=0.01", CONTROL, {"n_layers": 4}, train={"learning_rate": 0.01})
    arms = (arm("none", 0, 0.01), arm("x", -0.3, 0.02), arm("yy", 0.1, 0.01))
    study = make_seeded(tmp_path, (*arms, control), tune=tune)
    plan = json.loads((study / "plan.json").read_text())
    runs = [run for run in plan["runs"] if run["label"] != control.label]
    tune["controls"] = [{**run, "arm": "x"} for run in plan["runs"] if run["label"] == control.label]
    (study / "plan.json").write_text(json.dumps({**plan, "runs": runs, "tune": tune}))
    write_trials(study, tune, CURVES)
    return study


def test_the_verdict_at_the_baselines_value_stands_beside(folder: Path) -> None:
    found = compare([folder])
    assert [row.label for row in found.rows] == ["none", "x", "yy"]
    base, x, y = found.rows
    assert base.at_baseline is None and base.rates and x.rates and x.at_baseline and y.at_baseline
    assert x.cell("final_loss").verdict == "better"
    differences = [CONTROL[seed] - (3 + seed / 50) for seed in SEEDS]
    by_hand = stats.paired(differences)
    assert x.at_baseline.difference == pytest.approx(by_hand.mean)
    assert (x.at_baseline.low, x.at_baseline.high) == (pytest.approx(by_hand.low), pytest.approx(by_hand.high))
    assert x.at_baseline.verdict == "worse"
    own, beside = y.cell("final_loss"), y.at_baseline
    assert (own.difference, own.low, own.high) == (beside.difference, beside.low, beside.high)
    assert (x.rates.chosen, x.rates.edge, x.tuned) == (0.02, False, "0.02, bracketed; optimum 0.02 (0.02 to 0.02)")
    assert compare([folder], baseline="yy").row("x").at_baseline is None  # planned against another


def test_no_trial_and_no_control_enters_a_number(folder: Path, tmp_path: Path) -> None:
    bare = make_seeded(tmp_path / "bare", (arm("none", 0, 0.01), arm("x", -0.3, 0.02), arm("yy", 0.1, 0.01)))
    for own, other in zip(compare([folder]).rows, compare([bare]).rows, strict=True):
        assert own.cells == other.cells and own.n_planned == other.n_planned == 5


def test_every_format_has_what_was_tuned(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = compare([folder]).frame().set_index("variant")
    x = frame[frame["metric"] == "final_loss"].loc["x"]
    assert (x["tuned_value"], x["tuned_edge"], x["tuned_values"], x["tuned_runs"], x["tuned_lost"]) == (
        0.02, False, 5, 10, 0,
    )  # fmt: skip
    assert x["tuned_optimum"] == pytest.approx(0.02) and x["at_baseline_verdict"] == "worse"
    assert x["sensitivity"] == pytest.approx(0.1 * math.log(2) ** 2 * (9 + 4 + 1 + 0 + 1) / 5)
    for form in ("table", "md", "latex", "html"):
        assert main(["compare", str(folder), "--format", form]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "0.02, bracketed" in text and "worse" in text, form


def test_the_figure_has_a_curve_for_each_arm_and_a_cross_for_what_diverged(tmp_path: Path) -> None:
    curves = {"none": bowl(), "x": {**bowl(0.01), 0.04: None}}
    study = tuned_study(tmp_path, (arm("none", 0, 0.01), arm("x", 0.1, 0.01)), curves, {"none": 0.01, "x": 0.01})
    loaded = load_study(study)
    figure = rates_figure(named_study(loaded, {"x": "Eks"}))
    assert figure is not None
    (axes,) = figure.axes
    drawn = [line for line in axes.lines if str(line.get_label()) in ("none", "Eks")]
    assert [len(line.get_xdata()) for line in drawn] == [5, 4]  # type: ignore[arg-type]
    assert sum(line.get_marker() == "x" for line in axes.lines) == 2  # both seeds
    assert sum(line.get_markersize() == 11 for line in axes.lines) == 2
    assert axes.get_xscale() == "log"
    assert rates_figure(load_study(make_seeded(tmp_path / "b", (arm("none", 0, 0.01),)))) is None


# What tuning does to a verdict, by simulation: a study is two draws of noise around curves that are known.

CURVATURE = 0.03  # nats per token that a factor of two costs
STEPS = np.arange(-2, 3)  # the grid in powers of two


def chosen(draw: np.random.Generator, offset: float, noise: float, curvature: float = CURVATURE) -> float:
    """The true excess of the value that two tuning seeds choose, where the best one lies `offset` steps off."""
    truth = curvature * (STEPS - offset) ** 2
    seen = truth + draw.normal(0, noise, (2, 5))
    return float(truth[best_place(trials(seen), lower=True)])


def studies(number: int, arms: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(true difference, verdict's values less the baseline's) for `number` studies: (S, arms), (S, arms, 5)."""
    draw = np.random.default_rng(seed)
    noises = 0.01 * np.linspace(1, 2, arms + 1)
    truth = np.array([[chosen(draw, draw.uniform(-0.5, 0.5), noise) for noise in noises] for _ in range(number)])
    values = truth[..., None] + draw.normal(0, 1, (number, arms + 1, 5)) * noises[:, None]
    values += draw.normal(0, 0.05, (number, 1, 5))  # what a seed does to all arms alike
    return truth[:, 1:] - truth[:, :1], values[:, 1:] - values[:, :1]


def intervals(differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    middle = differences.mean(-1)
    half = stats.t_quantile(4) * differences.std(-1, ddof=1) / math.sqrt(5)
    return middle - half, middle + half


def test_intervals_on_fresh_seeds_cover_the_difference_at_what_was_chosen() -> None:
    truth, differences = studies(2000, 1, seed=1)
    low, high = intervals(differences)
    first = stats.paired(differences[0, 0].tolist())
    assert (low[0, 0], high[0, 0]) == (pytest.approx(first.low), pytest.approx(first.high))  # the house's own
    covered = float(((low <= truth) & (truth <= high)).mean())
    assert abs(covered - 0.95) < 0.015


def test_the_seeds_that_chose_would_flatter() -> None:
    """The value is the same everywhere, so the true difference is 0: what was chosen looks better on its own seeds."""
    draw = np.random.default_rng(2)
    number, noise = 2000, 0.01
    seen = draw.normal(0, noise, (number, 5, 5))  # (studies, values, seeds)
    best = seen[np.arange(number), seen.mean(-1).argmin(-1)]
    base, fresh = draw.normal(0, noise, (2, number, 5))
    assert best.mean() == pytest.approx(-1.163 * noise / math.sqrt(5), rel=0.1)  # the least of five readings
    flattered, honest = (float((intervals(own - base)[1] < 0).mean()) for own in (best, fresh))
    assert flattered > 0.055  # of 2.5 % that are allowed on this side
    assert honest < 0.036


def test_no_variant_that_changes_nothing_is_called_better_too_often() -> None:
    number = 600
    _, differences = studies(number, 3, seed=4)
    false = 0
    for study in differences:
        found = [stats.paired(one.tolist()) for one in study]
        ps = stats.holm([one.p for one in found])
        false += any(p < stats.ALPHA and one.mean < 0 for p, one in zip(ps, found, strict=True))
    assert false / number <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / number)


def test_more_trials_for_one_arm_are_an_advantage_that_can_be_told_beforehand() -> None:
    """Equal arms whose best value lies anywhere within a factor of four: five trials against none are worth 1.25 times
    what a factor of two costs (4/3 less 1/12 of it). docs/fairness.md says so."""
    draw = np.random.default_rng(5)
    offsets = draw.uniform(-2, 2, 2000)
    tuned = np.mean([chosen(draw, offset, 1e-4, 1.0) for offset in offsets])
    assert float((offsets**2).mean() - tuned) == pytest.approx(1.25, abs=0.06)
