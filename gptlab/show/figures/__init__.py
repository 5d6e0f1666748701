"""Figures of a study, each drawn when the study has the data for it, as SVG and PNG.

loss_curves         loss against tokens while training, with the band over seeds
rates               the trials of a tuning: loss against the rate, a curve for each arm, with its optimum
differences         forest plot: each variant's difference to the baseline with its interval and verdict
cost                loss against parameters and against FLOPs, the Pareto front marked
isolation           the best over all other knobs, for each setting of a knob
heatmap             two knobs at once
gradient_norm, gradient_mean_abs    gradient against depth
parameters          parameters by part of the model
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gptlab.comparing.comparison import Comparison
from gptlab.errors import GptlabError
from gptlab.metrics import METRICS
from gptlab.show.figures.curves import curves_figure
from gptlab.show.figures.depth import depth_figure
from gptlab.show.figures.forest import forest_figure
from gptlab.show.figures.heatmap import heatmap_figure
from gptlab.show.figures.isolation import isolation_figure
from gptlab.show.figures.knobs import Knobs, knobs
from gptlab.show.figures.parameters import parameter_figure
from gptlab.show.figures.pareto import pareto_figure
from gptlab.show.figures.rates import rates_figure
from gptlab.show.figures.style import drawing, save
from gptlab.store.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = "figures"


Lost = dict[str, str]  # name of a figure -> why it could not be drawn
NAMES = (
    "loss_curves", "rates", "differences", "cost", "isolation", "heatmap", "gradient_norm", "gradient_mean_abs",
    "parameters",
)  # fmt: skip


def figures(
    study: Study,
    comparison: Comparison | None = None,
    lost: Lost | None = None,
    only: Sequence[str] = NAMES,
    width: float | None = None,
) -> Iterator[tuple[str, Figure]]:
    """Name and figure, in reading order; one that fails is in `lost`, and the others go on. Call inside `drawing()`.

    `width`: of each, in inches; without it, each has its own.
    """
    metric = comparison.primary_metric if comparison else study.plan.primary_metric

    @functools.cache
    def varied() -> Knobs:
        return knobs(study, metric)

    makers: dict[str, Callable[[], Figure | None]] = {
        "loss_curves": lambda: curves_figure(study, width),
        "rates": lambda: rates_figure(study, width),
        "differences": lambda: forest_figure(comparison, width=width) if comparison else None,
        "cost": lambda: pareto_figure(study, metric, width),
        "isolation": lambda: isolation_figure(study, metric, varied(), width),
        "heatmap": lambda: heatmap_figure(study, metric, varied(), width),
        "gradient_norm": lambda: depth_figure(study, "grad_norm", width),
        "gradient_mean_abs": lambda: depth_figure(study, "grad_mean_abs", width),
        "parameters": lambda: parameter_figure(study, width),
    }
    for name in only:
        if name in ("differences", "cost") and not _weighed(study):
            continue
        needs_metric = name in ("differences", "cost", "isolation", "heatmap")
        if needs_metric and not (metric.split("/")[0] in METRICS and metric in study.runs):
            continue
        try:
            figure = makers[name]()
        except Exception as error:
            if lost is None:
                raise
            lost[name] = reason(error)
            continue
        if figure is not None:
            yield name, figure


def reason(error: Exception) -> str:
    """Why a figure could not be drawn, in one line."""
    first = next(iter(str(error).splitlines()), "")
    if isinstance(error, GptlabError):
        return first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _weighed(study: Study) -> bool:
    """Whether better and worse mean anything: one untrained model of each variant has a loss, but no merit."""
    return "final_loss" in study.runs or study.runs["seed"].nunique() > 1


def write_figures(
    study: Study,
    comparison: Comparison | None = None,
    lost: Lost | None = None,
    folder: Path | None = None,
    *,
    only: Sequence[str] = NAMES,
    formats: Sequence[str] = ("svg", "png"),
    title: bool = True,
    width: float | None = None,
) -> list[Path]:
    """Draw what the study has data for into its folder's `figures/` (or `folder`); return the paths.

    `width`: of each, in inches. `lost` gets the figures that could not be drawn; without it, an error ends all.
    OSError if no files are taken.
    """
    paths: list[Path] = []
    with drawing():
        for name, figure in figures(study, comparison, lost, only, width):
            try:
                paths += save(figure, folder or study.folder / FIGURES, name, formats, title=title)
            except OSError:
                raise
            except Exception as error:
                if lost is None:
                    raise
                lost[name] = reason(error)
    return paths
