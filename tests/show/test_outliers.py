"""One diverged variant must not hide what all the others did."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from gptlab.comparing.assemble import compare
from gptlab.show.figures import curves, forest, heatmap, isolation, parameters, pareto
from gptlab.show.figures.knobs import knobs
from gptlab.show.figures.outliers import window
from gptlab.show.figures.style import drawing
from gptlab.store.study import load_study
from tests.support.seeded import Arm, make_seeded
from tests.support.trained import make_grid, make_trained

KNOBS = {"model.emb_dim": ("64", "128", "256"), "train.lr": ("1e-3", "1e-2", "1e-1")}
FAR = 1e6


def blown(folder: Path, label: str) -> Path:
    """The study, its runs of `label` with a loss that grows to a million."""
    for run in json.loads((folder / "plan.json").read_text())["runs"]:
        if run["label"] != label:
            continue
        path = folder / run["folder"] / "result.json"
        result = json.loads(path.read_text())
        result["metrics"] |= {"loss": FAR + run["seed"], "final_loss": FAR + run["seed"]}
        result.get("artifacts", {}).pop("metrics.jsonl", None)
        path.write_text(json.dumps(result))
        steps = folder / run["folder"] / "metrics.jsonl"
        lines = [json.loads(line) for line in steps.read_text().splitlines()]
        for place, line in enumerate(lines):
            if place > len(lines) / 2:
                line["metrics"] |= {"train_loss": 1e4 * place, "validation_loss": 1e4 * place}
        steps.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.parametrize(
    ("values", "middle", "expected"),
    [
        ([], None, None),
        ([3.0], None, None),
        ([3.0, 3.0, 3.0], None, None),
        ([3.0, 3.1, 3.2, 4.5], None, None),
        ([3.0, 3.1, 3.2, 1e6], None, (3.0, 3.2)),
        ([3.0, 3.1, 3.2, -1e6, math.nan, math.inf], None, (3.0, 3.2)),
        ([3.5, 1e6], None, (3.5, 3.5)),
        ([3.5, 9.0], None, None),
        ([0.01, 0.3], 0.0, None),
        ([0.01, -0.02, 1e6], 0.0, (-0.02, 0.01)),
        ([0.0, 0.0], 0.0, None),
    ],
)
def test_what_shares_an_axis(values: list[float], middle: float | None, expected: tuple[float, float] | None) -> None:
    assert window(values, middle) == expected


def test_a_variant_without_effect_does_not_press_an_ordinary_one_off_the_axis(tmp_path: Path) -> None:
    noise = [-0.009, 0.004, 0.007, -0.006, 0.0045]
    arms = [
        Arm("none", dict.fromkeys(range(5), 3.0)),
        Arm("relu", {seed: 3.0001 + value for seed, value in enumerate(noise)}, {"activation": "relu"}),
        Arm("silu", {seed: 3.0296 + value / 5 for seed, value in enumerate(noise)}, {"activation": "silu"}),
    ]
    comparison = compare([make_seeded(tmp_path, arms)])
    cell = comparison.row("silu").cell("final_loss")
    assert (cell.verdict, cell.difference) == ("worse", pytest.approx(0.0297, abs=1e-4))
    with drawing():
        figure = forest.forest_figure(comparison)
        assert figure is not None
        low, high = figure.axes[0].get_xlim()
        assert low < 0
        assert cell.high is not None and cell.high < high < 2 * cell.high
        assert "arrow" not in " ".join(text.get_text() for text in figure.texts)


def test_differences_and_cost_stay_readable(tmp_path: Path) -> None:
    folder = blown(make_trained(tmp_path), "wide")
    study, comparison = load_study(folder), compare([folder])
    with drawing():
        figure = forest.forest_figure(comparison)
        assert figure is not None
        low, high = figure.axes[0].get_xlim()
        assert high - low < 1
        texts = " ".join(text.get_text() for text in (*figure.axes[0].texts, *figure.texts))
        assert re.search(r"\+(999\d{3}|1000000)", texts), texts[200:]
        assert "arrow: beyond the axis" in texts
        assert [line.get_marker() for line in figure.axes[0].lines].count(">") == 1
        figure = pareto.pareto_figure(study, "final_loss")
        assert figure is not None
        for axes in figure.axes:
            low, high = axes.get_ylim()
            assert 3 < low < high < 4
            box = axes.get_window_extent()
            names = [text for text in axes.texts if "better" not in text.get_text()]
            assert "wide (1.00e+06)" in [text.get_text() for text in names]
            assert {"none", "rmsnorm"} <= {text.get_text() for text in names}
            assert all(text.get_window_extent().y1 <= box.y1 + 2 for text in names)


@pytest.mark.parametrize("labels", [("none", "wide"), ("none", "relu", "wide"), ()])
def test_curves_are_cut_where_one_run_leaves(tmp_path: Path, labels: tuple[str, ...]) -> None:
    folder = blown(make_trained(tmp_path, labels) if labels else make_trained(tmp_path), "wide")
    with drawing():
        figure = curves.curves_figure(load_study(folder))
    assert figure is not None
    assert all(axes.get_ylim()[1] < 20 for axes in figure.axes)
    assert any("beyond the axis: wide (up to" in text.get_text() for text in figure.texts)


def test_two_knobs_stay_readable(tmp_path: Path) -> None:
    folder = make_grid(tmp_path, KNOBS)
    label = json.loads((folder / "plan.json").read_text())["runs"][-1]["label"]
    study = load_study(blown(folder, label))
    found = knobs(study, "final_loss")
    with drawing():
        figure = heatmap.heatmap_figure(study, "final_loss", found)
        assert figure is not None
        assert figure.axes[1].get_ylim()[1] < 6
        assert "1.00e+06" in [text.get_text() for text in figure.axes[0].texts]
        assert figure.axes[1].get_position().y1 == pytest.approx(figure.axes[0].get_position().y1)
        figure = isolation.isolation_figure(study, "final_loss", found)
        assert figure is not None
        for axes in figure.axes:
            assert axes.get_ylim()[1] < 6
            assert [text.get_text() for text in axes.texts] == ["1.00e+06"]


def test_a_forest_of_one_seed_says_so_once(tmp_path: Path) -> None:
    with drawing():
        figure = forest.forest_figure(compare([make_trained(tmp_path, ("none", "relu", "wide"), (1,))]))
    assert figure is not None
    texts = [text.get_text() for text in (*figure.axes[0].texts, *figure.texts)]
    assert not any("too few" in text for text in texts)
    assert sum("One seed: cannot be told from noise" in text for text in texts) == 1


def test_a_wide_interval_alone_is_drawn_whole(tmp_path: Path) -> None:
    base, own = {1: 3.0, 2: 3.1, 3: 3.2}, {1: 3.4, 2: 2.9, 3: 3.1}
    comparison = compare([make_seeded(tmp_path, [Arm("none", base), Arm("x", own, {"norm": "x"})])])
    cell = comparison.row("x").cell("final_loss")
    with drawing():
        figure = forest.forest_figure(comparison)
    assert figure is not None
    assert cell.low is not None
    assert cell.high is not None
    low, high = figure.axes[0].get_xlim()
    assert low < cell.low < cell.high < high


def test_the_closer_look_has_two_points_at_least(tmp_path: Path) -> None:
    values = {1: 3.0, 2: 3.1, 3: 3.2}

    def drawn(root: Path, steps: list[int]) -> Figure:
        arms = [Arm("none", values, curve=steps), Arm("x", values, {"norm": "x"}, curve=steps)]
        with drawing():
            figure = curves.curves_figure(load_study(make_seeded(root, arms)))
        assert figure is not None
        return figure

    assert len(drawn(tmp_path / "two", [0, 9]).axes) == 1  # it would show the same
    figure = drawn(tmp_path / "three", [0, 1, 9])
    lines = [line for line in figure.axes[1].lines if line.get_linestyle() != "None"]  # beside them, dots of the seeds
    assert lines and all(len(np.asarray(line.get_xdata())) == 2 for line in lines)


def test_no_line_crosses_the_totals(tmp_path: Path) -> None:
    with drawing():
        figure = parameters.parameter_figure(load_study(make_trained(tmp_path)))
        assert figure is not None
        axes = figure.axes[0]
        right = axes.get_window_extent().x1
        assert len(axes.texts) == 6
        assert all(text.get_window_extent().x0 > right for text in axes.texts)
        assert all(text.get_window_extent().x1 < figure.bbox.x1 for text in axes.texts)
