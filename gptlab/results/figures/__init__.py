"""Figures of a study: gradients against depth, and parameters by part. Each as SVG and PNG."""

from __future__ import annotations

from pathlib import Path

from gptlab.results.depth import depth_figure
from gptlab.results.parts import parameter_figure
from gptlab.results.study import Study
from gptlab.results.style import drawing, save

FIGURES = "figures"


def write_figures(study: Study) -> list[Path]:
    """Draw what the study has data for into its folder's `figures/`; return the paths. OSError if it takes no files."""
    paths: list[Path] = []
    with drawing():
        for name, figure in (
            ("gradient_norm", depth_figure(study, "grad_norm")),
            ("gradient_mean_abs", depth_figure(study, "grad_mean_abs")),
            ("parameters", parameter_figure(study)),
        ):
            if figure is not None:
                paths += save(figure, study.folder / FIGURES, name)
    return paths
