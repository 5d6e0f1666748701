"""Figures for a page: as wide as asked, with nothing beyond their edges, whatever the width."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread

from gptlab.cli import main
from gptlab.comparing.assemble import compare
from gptlab.comparing.comparison import Comparison
from gptlab.errors import GptlabError
from gptlab.show.figures import NAMES, figures, page
from gptlab.show.figures.style import apart, drawing
from gptlab.store.study import Study, load_study
from tests.support.seeded import Arm
from tests.support.synthetic import TWELVE, make_study
from tests.support.trained import make_grid, make_trained
from tests.support.tuned import bowl, tuned_study


@pytest.fixture(autouse=True)
def _drawing() -> Iterator[None]:
    with drawing():
        yield


@pytest.mark.parametrize(
    ("text", "inches"), [("84mm", 84 / 25.4), ("8.4cm", 84 / 25.4), ("3.5in", 3.5), ("252pt", 3.5)]
)
def test_a_width_with_its_unit(text: str, inches: float) -> None:
    assert page.inches("--width", text) == pytest.approx(inches)


@pytest.mark.parametrize(
    ("text", "code"),
    [(text, "width-unreadable") for text in ("84", "84px", "-3in", "wide", "9in9", "1e9mm")]
    + [(text, "width-out-of-range") for text in ("5mm", "900mm")],
)
def test_what_is_no_width_is_refused(text: str, code: str) -> None:
    with pytest.raises(GptlabError) as caught:
        page.inches("--width", text)
    assert caught.value.code == code


def _spill(figure: Figure) -> float:
    """How far, in inches, anything is drawn beyond the left or right edge, or above the top."""
    box = figure.get_tightbbox(FigureCanvasAgg(figure).get_renderer())  # type: ignore[no-untyped-call]
    return float(max(-box.x0, box.x1 - figure.get_figwidth(), box.y1 - figure.get_figheight()))


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Study, Comparison]]:
    root = tmp_path_factory.mktemp("studies")
    few = ("none", "relu", "post_ln", "rmsnorm", "wide_v_with_a_name_that_goes_on_and_on_beyond_what_fits")
    folders = [
        make_trained(root / "few", few, (1, 2, 3)),
        make_trained(root / "many", tuple(f"wide_v_with_a_longer_name_{n}" for n in range(9)), (1, 2, 3)),
        make_grid(root / "grid", {"model.emb_dim": ("64", "128"), "train.learning_rate": ("1e-4", "1e-3")}),
        make_study(root / "depth", TWELVE),
        _tuned(root / "tuned"),
    ]
    for folder in folders[:3]:
        plan = json.loads((folder / "plan.json").read_text())
        (folder / "plan.json").write_text(json.dumps({**plan, "primary_metric": "final_loss"}))
    return [(load_study(folder), compare([folder])) for folder in folders]


def _tuned(root: Path) -> Path:
    arms = tuple(
        Arm(label, {1: 3.0, 2: 3.1, 3: 3.2}, {"n_layers": n}) for n, label in enumerate(("none", "post_ln"), 2)
    )
    curves = {"none": bowl(0.01), "post_ln": bowl(0.005)}
    return tuned_study(root, arms, curves, {"none": 0.01, "post_ln": 0.005})


@pytest.mark.parametrize("width", [84 / 25.4, 174 / 25.4, 10.5])
def test_every_figure_is_as_wide_as_asked_and_nothing_is_cut(
    studies: list[tuple[Study, Comparison]], width: float
) -> None:
    seen = set()
    for study, comparison in studies:
        for name, figure in figures(study, comparison, width=width):
            seen.add(name)
            assert figure.get_figwidth() == pytest.approx(width), name
            assert _spill(figure) < 0.06, (name, study.folder)
    assert seen == set(NAMES)


def test_a_table_of_numbers_says_the_width_that_it_needs(tmp_path: Path) -> None:
    rates = tuple(f"{n}e-4" for n in range(1, 13))
    folder = make_grid(tmp_path, {"model.emb_dim": ("64", "128"), "train.learning_rate": rates})
    lost: dict[str, str] = {}
    names = [name for name, _ in figures(load_study(folder), compare([folder]), lost, ["heatmap"], 84 / 25.4)]
    assert names == [] and "--width" in lost["heatmap"]
    asked = page.inches("--width", lost["heatmap"].split("--width ")[1].split()[0]) + 0.04  # whole millimetres
    assert [name for name, _ in figures(load_study(folder), compare([folder]), None, ["heatmap"], asked)] == ["heatmap"]


def test_without_title_the_width_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_trained(tmp_path / "s", ("none", "relu"), (1, 2, 3))
    out = tmp_path / "paper"
    options = ["--only", "loss_curves,differences", "--width", "84mm", "--format", "png"]
    assert main(["figures", "--study", str(folder), *options, "-o", str(out)]) == 0
    tall = {path.name: imread(path).shape for path in out.glob("*.png")}
    assert main(["figures", "--study", str(folder), *options, "--no-title", "-o", str(out)]) == 0
    for path in out.glob("*.png"):
        height, width, _ = imread(path).shape
        assert width == tall[path.name][1] == pytest.approx(84 / 25.4 * 150, abs=1)
        assert height < tall[path.name][0]


def test_labels_of_one_figure_stay_apart_however_short() -> None:
    labels = [f"a_common_beginning_{n}_and_a_common_end" for n in range(12)]
    assert len(set(apart(labels, 9))) == 12
