"""Figures of what a study found: curves, differences, cost, knobs."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gptlab.cli import main
from gptlab.comparing.assemble import compare
from gptlab.comparing.comparison import BETTER, NOT_COMPARABLE, UNCLEAR, Cell, Comparison, Row
from gptlab.show.figures import figures, write_figures
from gptlab.show.figures.bands import t_band
from gptlab.show.figures.curves import curves_figure
from gptlab.show.figures.forest import LOOKS, forest_figure
from gptlab.show.figures.guesses import SOFT, guesses
from gptlab.show.figures.heatmap import heatmap_figure
from gptlab.show.figures.isolation import best, isolation_figure
from gptlab.show.figures.knobs import knobs
from gptlab.show.figures.pareto import front, pareto_figure
from gptlab.show.figures.style import drawing, svg
from gptlab.show.finish import finish_study
from gptlab.store.study import load_study
from tests.support.refusals import refused_command
from tests.support.seeded import Arm, make_seeded
from tests.support.synthetic import TWELVE, make_study
from tests.support.trained import CHANGES, make_grid, make_trained

WIDTHS = ("64", "128", "256", "512")
RATES = ("1e-4", "1e-3", "1e-2")


@pytest.fixture(autouse=True)
def _drawing() -> Iterator[None]:
    with drawing():
        yield


def test_the_band_is_the_t_interval_of_the_mean() -> None:
    values = [3.1, 3.4, 2.9, 3.3]
    mean, low, high = t_band([[value, 1.0] for value in values])
    half = 3.182446305284263 * statistics.stdev(values) / 2  # t with three degrees of freedom, from a printed table
    assert (mean[0], low[0], high[0]) == pytest.approx((3.175, 3.175 - half, 3.175 + half))
    assert (low[1], high[1]) == (1.0, 1.0)


@pytest.mark.parametrize(("seeds", "bands", "lines"), [((1,), 0, 2), ((1, 2), 0, 4), ((1, 2, 3), 2, 2)])
def test_a_band_from_three_seeds_and_a_line_per_run_below(
    tmp_path: Path, seeds: tuple[int, ...], bands: int, lines: int
) -> None:
    figure = curves_figure(load_study(make_trained(tmp_path, ("none", "relu"), seeds)))
    assert figure is not None
    for axes in figure.axes:
        assert len(axes.collections) == bands
        drawn = [line for line in axes.lines if line.get_linestyle() != "None" and line.get_color() != SOFT]
        assert len(drawn) == lines
        dots = [len(line.get_xdata()) for line in axes.lines if line.get_linestyle() == "None"]  # type: ignore[arg-type]
        assert dots == [len(seeds)] * bands  # each seed beside the mean that hides it
        assert axes.get_xlabel() == "million tokens"
        assert axes.get_ylabel() == "validation loss (nats/token)"
    curves = [line for line in figure.axes[0].lines if line.get_linestyle() != "None" and line.get_color() != SOFT]
    widths = {line.get_linewidth() for line in curves}
    assert widths == ({1.6 * 0.55} if len(seeds) == 2 else {1.6})


def test_curves_are_held_against_what_guessing_gives(tmp_path: Path) -> None:
    known = {"unigram_entropy": 2.5, "entropy_floor": 1.25, "ln_vocab_size": math.log(16)}
    curve = range(0, 2000, 100)  # from 100 above the end down to it: ln V is in the second panel alone
    arms = [Arm(name, {1: 1.5}, {"n_layers": k}, known, curve=curve) for k, name in enumerate(("none", "x"))]
    figure = curves_figure(load_study(make_seeded(tmp_path / "a", arms)))
    assert figure is not None
    lines = {round(float(line.get_ydata()[0]), 3): line for line in figure.axes[1].lines if line.get_color() == SOFT}  # type: ignore[index, arg-type]
    assert set(lines) <= {2.773, 2.5, 1.25} and 1.25 not in lines  # below all that was reached: no part of this panel
    far = [replace(arm, metrics={**known, "unigram_entropy": 2.0 + k}) for k, arm in enumerate(arms)]
    assert [guess.value for guess in guesses(load_study(make_seeded(tmp_path / "b", far)))] == [math.log(16), 1.25]
    silent = [replace(arm, metrics={}) for arm in arms]
    assert guesses(load_study(make_seeded(tmp_path / "c", silent))) == []
    sized = [replace(arm, metrics={}, model={**arm.model, "vocab_size": 50}) for arm in arms]
    assert [guess.value for guess in guesses(load_study(make_seeded(tmp_path / "d", sized)))] == [math.log(50)]


def test_a_diverged_run_ends_in_a_cross_and_takes_the_band_with_it(tmp_path: Path) -> None:
    figure = curves_figure(load_study(make_trained(tmp_path, ("none", "relu"), (1, 2, 3), diverged="relu")))
    assert figure is not None
    whole, later = figure.axes
    crosses = [line for line in whole.lines if line.get_marker() == "x"]
    assert len(crosses) == 1
    end = float(crosses[0].get_xdata()[0])  # type: ignore[index, arg-type]
    assert end == pytest.approx(1000 * 4096 / 1e6)
    bands = [collection.get_paths()[0].vertices[:, 0].max() for collection in whole.collections]
    assert sorted(bands) == pytest.approx([end, 2000 * 4096 / 1e6])
    assert later.get_ylim()[1] < 5  # the run that blew up does not set the scale


def test_many_variants_get_a_panel_each_and_few_share_one(tmp_path: Path) -> None:
    labels = ["none", *(f"{name}_v{k}" for k in range(2) for name in CHANGES if name != "none")]
    figure = curves_figure(load_study(make_trained(tmp_path, labels, (1,))))
    assert figure is not None
    assert [axes.get_title(loc="left") for axes in figure.axes] == labels
    assert len({axes.get_ylim() for axes in figure.axes}) == 1


def test_untrained_runs_have_no_curves(tmp_path: Path) -> None:
    assert curves_figure(load_study(make_study(tmp_path, TWELVE[:2]))) is None


def _row(label: str, cell: Cell, baseline: str | None = "none") -> Row:
    return Row(label, "", "s", baseline, {}, 5, 5, 0, 0, 0, None, None, None, None, {("loss", None): cell})


def _comparison(*rows: Row) -> Comparison:
    base = _row("none", Cell("loss", n=5, mean=3.0), None)
    return Comparison((), "s", "", "none", "loss", ("loss",), (), (), (base, *rows), ())


def test_a_forest_says_each_verdict_by_shape_and_in_words() -> None:
    better = Cell("loss", difference=-0.1, low=-0.12, high=-0.08, interval="t", verdict=BETTER, bold=True)
    unclear = Cell("loss", difference=0.01, low=-0.9, high=0.92, interval="t", verdict=UNCLEAR)
    none = Cell("loss", verdict=NOT_COMPARABLE, reason="other data")
    figure = forest_figure(_comparison(_row("a$b", better), _row("<b>", unclear), _row("c", none)))
    assert figure is not None
    axes = figure.axes[0]
    texts = [text.get_text() for text in axes.texts]
    assert {"better", "no clear difference", "not comparable (other data)"} <= set(texts)
    assert "-0.100  [-0.120, -0.080]" in texts
    assert [label.get_text() for label in axes.get_yticklabels()] == [r"a\$b", "<b>", "c"]
    markers = {line.get_marker() for line in axes.lines}
    assert {"<", ">"} <= markers  # the wide interval goes on beyond the axis, so that it does not hide the others
    assert axes.get_xlim()[1] < 0.5
    assert len({(look["marker"], look.get("markerfacecolor")) for look in LOOKS.values()}) == len(LOOKS)
    assert axes.get_xlabel() == "loss: difference to the baseline (nats/token)"


def test_a_forest_of_ratios_is_logarithmic_around_one() -> None:
    cell = Cell("grad_norm", scale="ratio", difference=2.0, low=1.8, high=2.2, interval="t", verdict=UNCLEAR)
    row = Row("a", "", "s", "none", {}, 5, 5, 0, 0, 0, None, None, None, None, {("grad_norm", None): cell})
    figure = forest_figure(_comparison(row), "grad_norm")
    assert figure is not None
    assert figure.axes[0].get_xscale() == "log"
    assert "x2.000  [x1.800, x2.200]" in [text.get_text() for text in figure.axes[0].texts]


def test_a_forest_shows_each_seed_and_points_to_those_beyond_the_axis(tmp_path: Path) -> None:
    shifts = {"near": [0.01, 0.02, 0.03, 0.02, 0.01], "far": [0.01, 0.02, 0.01, 0.02, 0.5]}
    base = Arm("none", dict.fromkeys(range(5), 3.0))
    arms = [
        Arm(name, {s: 3.0 + d for s, d in enumerate(each)}, {"n_layers": len(name)}) for name, each in shifts.items()
    ]
    figure = forest_figure(compare([make_seeded(tmp_path, [base, *arms])]))
    assert figure is not None
    dots = [line for line in figure.axes[0].lines if line.get_color() == "#888888"]
    assert sum(len(line.get_xdata()) for line in dots) == 10  # type: ignore[arg-type]
    inside = sorted(float(x) for line in dots if line.get_marker() == "." for x in line.get_xdata())  # type: ignore[union-attr]
    assert inside[0] == pytest.approx(0.01)


def test_no_differences_no_forest() -> None:
    assert forest_figure(_comparison()) is None


def test_the_front_is_what_nothing_beats() -> None:
    xs, ys = [1.0, 2.0, 2.0, 3.0, 4.0, 1.0], [5.0, 4.0, 4.0, 4.5, 3.0, 6.0]
    on = front(xs, ys)
    beaten = {
        k
        for k in range(len(xs))
        for o in range(len(xs))
        if xs[o] <= xs[k] and ys[o] <= ys[k] and (xs[o], ys[o]) != (xs[k], ys[k])
    }
    assert set(on) == set(range(len(xs))) - beaten == {0, 1, 2, 4}
    assert set(front(xs, [-y for y in ys], higher=True)) == set(on)


def test_cost_has_a_panel_for_parameters_and_one_for_flops(tmp_path: Path) -> None:
    figure = pareto_figure(load_study(make_trained(tmp_path)), "final_loss")
    assert figure is not None
    assert [axes.get_xlabel() for axes in figure.axes] == ["million parameters", r"10$^{15}$ training FLOPs"]
    bold = {text.get_text() for text in figure.axes[0].texts if text.get_fontweight() == "bold"}
    assert bold == {"expansion_2", "rmsnorm", "wide"}


def test_a_metric_without_a_better_end_has_no_front(tmp_path: Path) -> None:
    assert pareto_figure(load_study(make_trained(tmp_path, seeds=(1,))), "grad_norm") is None


def test_isolation_takes_the_best_over_the_other_knob(tmp_path: Path) -> None:
    study = load_study(make_grid(tmp_path, {"model.emb_dim": WIDTHS, "train.lr": RATES}))
    found = knobs(study, "final_loss")
    assert found.names == ("model.emb_dim", "train.lr")
    means = found.table.groupby(["train.lr", "model.emb_dim"])["value"].mean()
    for _, row in best(found, "train.lr", higher=False).iterrows():
        assert row["mean"] == pytest.approx(min(means[row["setting"]]))
    assert list(best(found, "train.lr", higher=False)["setting"]) == ["1e-4", "1e-3", "1e-2"]  # by size
    figure = isolation_figure(study, "final_loss", found)
    assert figure is not None
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["model.emb_dim", "train.lr"]


def test_isolation_says_how_many_variants_have_no_number(tmp_path: Path) -> None:
    study = load_study(make_grid(tmp_path, {"model.emb_dim": WIDTHS, "train.lr": RATES}))
    labels = sorted(set(study.runs["label"]))
    for lost in (0, 2):
        study.runs.loc[study.runs["label"].isin(labels[:lost]), "final_loss"] = float("nan")
        figure = isolation_figure(study, "final_loss", knobs(study, "final_loss"))
        assert figure is not None
        said = " ".join(text.get_text() for text in figure.texts)
        assert (f"without a number: 2 of {len(labels)} variants" in said) == bool(lost)


def test_one_knob_of_words_is_no_isolation(tmp_path: Path) -> None:
    study = load_study(make_trained(tmp_path, seeds=(1,)))
    assert isolation_figure(study, "final_loss", knobs(study, "final_loss")) is None


def test_a_heatmap_of_exactly_two_knobs(tmp_path: Path) -> None:
    study = load_study(make_grid(tmp_path / "two", {"model.emb_dim": WIDTHS, "train.lr": RATES}, (1,)))
    found = knobs(study, "final_loss")
    figure = heatmap_figure(study, "final_loss", found)
    assert figure is not None
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("model.emb_dim", "train.lr")
    texts = [float(text.get_text()) for text in axes.texts]
    assert len(texts) == 12
    assert min(texts) == pytest.approx(found.table["value"].min(), abs=0.005)
    three = load_study(make_grid(tmp_path / "three", {"a.b": ("1", "2"), "c.d": ("1", "2"), "e.f": ("1", "2")}, (1,)))
    assert heatmap_figure(three, "final_loss", knobs(three, "final_loss")) is None


@pytest.mark.slow
def test_all_of_them_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    for folder in (
        make_trained(tmp_path / "a", seeds=(1, 2, 3)),
        make_grid(tmp_path / "b", {"a.b": WIDTHS, "c.d": RATES}),
    ):
        plan = folder / "plan.json"
        plan.write_text(plan.read_text().replace('"primary_metric": "loss"', '"primary_metric": "final_loss"'))
        study, comparison = load_study(folder), compare([folder])
        once = {name: svg(figure) for name, figure in figures(study, comparison)}
        again = {name: svg(figure) for name, figure in figures(study, comparison)}
        assert once == again
        for content in once.values():
            ElementTree.fromstring(content)
    assert {"loss_curves", "differences", "isolation", "heatmap"} <= once.keys()


def test_the_primary_metric_need_not_have_been_measured(tmp_path: Path) -> None:
    folder = make_study(tmp_path, TWELVE[:3])
    plan = folder / "plan.json"
    plan.write_text(plan.read_text(encoding="utf-8").replace('"loss"', '"no_such_metric"'), encoding="utf-8")
    assert any(path.name == "gradient_norm.svg" for path in write_figures(load_study(folder)))


def test_values_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    study = load_study(make_trained(tmp_path, ("none", "relu"), (1, 2, 3), diverged="relu"))
    assert not math.isfinite(study.steps["value"].max(skipna=False))
    points = pareto_figure(study, "final_loss")
    assert points is None or all(math.isfinite(end) for axes in points.axes for end in axes.get_ylim())


def test_a_figure_that_fails_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("by hand\nsecond line")

    monkeypatch.setattr("gptlab.show.figures.pareto_figure", fails)
    folder = make_trained(tmp_path, ("none", "relu"), (1, 2, 3))
    finish_study(folder, 100, io.StringIO())
    drawn = {path.stem for path in (folder / "figures").iterdir()}
    assert {"loss_curves", "differences", "parameters"} <= drawn
    assert "cost" not in drawn
    assert "could not be drawn: ZeroDivisionError: by hand." in (folder / "report.html").read_text(encoding="utf-8")


def test_a_variant_that_ends_in_the_first_half_has_its_curve(tmp_path: Path) -> None:
    arms = [Arm("none", {1: 3.0, 2: 3.1, 3: 3.2}, curve=range(0, 100, 10))]
    arms.append(Arm("short", {1: 3.0, 2: 3.1, 3: 3.2}, {"n_layers": 3}, curve=range(0, 40, 10)))
    study = load_study(make_seeded(tmp_path, arms))
    with drawing():
        figure = curves_figure(study)
        assert figure is not None
        assert svg(figure)


def test_the_figures_of_a_study_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_trained(tmp_path / "study", ("none", "relu"), (1, 2, 3))
    asked = ["figures", "--study", str(folder), "--only", "differences", "--format", "pdf", "--no-title"]
    assert main([*asked, "-o", str(tmp_path / "paper")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'paper' / 'differences.pdf'}\n"
    assert [path.name for path in (tmp_path / "paper").iterdir()] == ["differences.pdf"]
    assert (tmp_path / "paper" / "differences.pdf").read_bytes().startswith(b"%PDF")
    wrong = ["figures", "--study", folder, "--only", "diferences"]
    refused_command(capsys, *wrong, code="unknown-name", value="diferences", suggestion="differences")
    assert main(["figures", "--no-title"]) == 2
