from __future__ import annotations

import math
import xml.etree.ElementTree
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import pytest

from gptlab.show.figures import write_figures
from gptlab.show.figures.depth import depth_figure
from gptlab.show.figures.parameters import parameter_figure
from gptlab.show.figures.style import drawing
from gptlab.store.study import load_study
from tests.support.synthetic import BASELINE, MLP, TWELVE, Variant, make_study

THIRTY = [replace(TWELVE[i % 12], label=f"{TWELVE[i % 12].label}_{i}" if i else "none") for i in range(30)]
ODD = [
    BASELINE,
    replace(BASELINE, label="zero", scale=0.0),
    replace(BASELINE, label="tiny", growth=1e-3),
    replace(BASELINE, label="nan", scale=math.nan),
    replace(BASELINE, label="deep $x$ \x1b[31m 日本", layers=24),
    Variant("failed", state="failed", error="ValueError"),
]


@pytest.mark.parametrize(
    ("variants", "panels"),
    [(TWELVE[:1], 1), (TWELVE, 12), (THIRTY, 24), (MLP, 2), (ODD, 5)],
    ids=["one", "twelve", "thirty", "deep_mlp", "odd"],
)
def test_one_panel_per_measured_variant(tmp_path: Path, variants: Sequence[Variant], panels: int) -> None:
    study = load_study(make_study(tmp_path, variants))
    with drawing():
        for metric in ("grad_norm", "grad_mean_abs"):
            figure = depth_figure(study, metric)
            assert figure is not None
            assert len(figure.axes) == panels
            assert {axes.get_yscale() for axes in figure.axes} == {"log"}
            assert len({axes.get_ylim() for axes in figure.axes}) == 1
            figure.canvas.draw()


def test_the_baseline_is_the_ghost_of_the_others_only(tmp_path: Path) -> None:
    study = load_study(make_study(tmp_path, TWELVE[:3], seeds=(1, 2)))
    with drawing():
        figure = depth_figure(study, "grad_norm")
    assert figure is not None
    drawn = [sum(len(line.get_xdata()) == 12 for line in axes.lines) for axes in figure.axes]  # type: ignore[arg-type]
    assert drawn == [2, 4, 4]  # two seeds; with the baseline's two behind them


def test_zero_gradients_are_marked_on_the_floor(tmp_path: Path) -> None:
    study = load_study(make_study(tmp_path, ODD[:2]))
    with drawing():
        figure = depth_figure(study, "grad_norm")
    assert figure is not None
    axes = figure.axes[1]
    marks = [line for line in axes.lines if line.get_marker() == "v" and len(line.get_xdata()) == 12]  # type: ignore[arg-type]
    assert len(marks) == 1
    assert set(marks[0].get_ydata()) == {axes.get_ylim()[0]}  # type: ignore[arg-type]
    assert "exactly zero" in [text.get_text() for text in axes.texts]


def test_totals_are_exact(tmp_path: Path) -> None:
    with drawing():
        figure = parameter_figure(load_study(make_study(tmp_path, TWELVE)))
    assert figure is not None
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts[0] == "163,009,536"
    assert "124,412,160  (-23.68%)" in texts
    assert "163,009,536  (same)" in texts
    assert len(texts) == 12  # the failed run has none
    ends: dict[float, float] = {}
    for bar in figure.axes[0].patches:
        x, y = bar.get_x() + bar.get_width(), bar.get_y()  # type: ignore[attr-defined]
        ends[y] = max(ends.get(y, 0.0), x)
    assert next(iter(ends.values())) == pytest.approx(163.009536)


def test_files_are_the_same_bytes_each_time_and_well_formed(tmp_path: Path) -> None:
    study = load_study(make_study(tmp_path, ODD))
    first = {path.name: path.read_bytes() for path in write_figures(study)}
    second = {path.name: path.read_bytes() for path in write_figures(study)}
    assert first == second
    assert len(first) == 6
    for name, content in first.items():
        if name.endswith(".svg"):
            xml.etree.ElementTree.fromstring(content)
            assert b"<dc:date>" not in content


def test_nothing_measured_nothing_drawn(tmp_path: Path) -> None:
    study = load_study(make_study(tmp_path, [Variant("none", state="failed", error="no")]))
    assert write_figures(study) == []
    assert not (study.folder / "figures").exists()


def test_the_users_matplotlib_settings_are_neither_used_nor_changed(tmp_path: Path) -> None:
    study = load_study(make_study(tmp_path, TWELVE[:2]))
    plain = [path.read_bytes() for path in write_figures(study)]
    with mpl.rc_context({"font.size": 30, "axes.grid": False}):
        before = dict(mpl.rcParams)
        assert [path.read_bytes() for path in write_figures(study)] == plain
        assert dict(mpl.rcParams) == before
