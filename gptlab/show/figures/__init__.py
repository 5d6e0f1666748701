"""Figures of a study, each drawn when the study has the data for it, as SVG and PNG.

loss_curves         loss against tokens while training, with the band over seeds
differences         forest plot: each variant's difference to the baseline with its interval and verdict
cost                loss against parameters and against FLOPs, the Pareto front marked
isolation           the best over all other knobs, for each setting of a knob
heatmap             two knobs at once
gradient_norm, gradient_mean_abs    gradient against depth
parameters          parameters by part of the model
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gptlab.comparing.comparison import Comparison
from gptlab.metrics import METRICS
from gptlab.show.figures.curves import curves_figure
from gptlab.show.figures.depth import depth_figure
from gptlab.show.figures.forest import forest_figure
from gptlab.show.figures.heatmap import heatmap_figure
from gptlab.show.figures.isolation import isolation_figure
from gptlab.show.figures.knobs import Knobs, knobs
from gptlab.show.figures.parameters import parameter_figure
from gptlab.show.figures.pareto import pareto_figure
from gptlab.show.figures.style import drawing, save
from gptlab.store.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = "figures"


def figures(study: Study, comparison: Comparison | None = None) -> Iterator[tuple[str, Figure]]:
    """Name and figure, in reading order. Call inside `drawing()`."""
    metric = comparison.primary_metric if comparison else study.plan.primary_metric

    @functools.cache
    def varied() -> Knobs:
        return knobs(study, metric)

    makers: dict[str, Callable[[], Figure | None]] = {
        "loss_curves": lambda: curves_figure(study),
        "differences": lambda: forest_figure(comparison) if comparison else None,
        "cost": lambda: pareto_figure(study, metric),
        "isolation": lambda: isolation_figure(study, metric, varied()),
        "heatmap": lambda: heatmap_figure(study, metric, varied()),
        "gradient_norm": lambda: depth_figure(study, "grad_norm"),
        "gradient_mean_abs": lambda: depth_figure(study, "grad_mean_abs"),
        "parameters": lambda: parameter_figure(study),
    }
    for name, make in makers.items():
        if name in ("differences", "cost") and not _weighed(study):
            continue
        needs_metric = name in ("differences", "cost", "isolation", "heatmap")
        if needs_metric and not (metric.split("/")[0] in METRICS and metric in study.runs):
            continue
        figure = make()
        if figure is not None:
            yield name, figure


def _weighed(study: Study) -> bool:
    """Whether better and worse mean anything: one untrained model of each variant has a loss, but no merit."""
    return "final_loss" in study.runs or study.runs["seed"].nunique() > 1


def write_figures(study: Study, comparison: Comparison | None = None) -> list[Path]:
    """Draw what the study has data for into its folder's `figures/`; return the paths. OSError if it takes no files."""
    paths: list[Path] = []
    with drawing():
        for name, figure in figures(study, comparison):
            paths += save(figure, study.folder / FIGURES, name)
    return paths
