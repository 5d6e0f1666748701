"""The seven figures of the sources that gptlab grew from, computed anew each time: `gptlab figures`.

Each module here has the name of its figure and a function `figure()` that computes and draws it; what it computes has a
function of its own, for the studies and for anybody else. (Figures of a study's runs: `gptlab.show.figures`.)
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gptlab.errors import unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = {
    "shape_trace": "every tensor on its way through GPT-2 124M, with bytes",
    "layer_norm": "one row normalised with both variance conventions, and where they stop mattering",
    "activation_curves": "ReLU, GELU and its tanh form: values, derivatives, and the gap between the two GELUs",
    "expansion_parity": "parameters of the feed-forward layer against attention's, over the expansion factor",
    "gradient_flow": "gradients of a five-layer network with and without shortcuts",
    "parameter_budget": "where the parameters of the four GPT-2 sizes live, tied and untied",
    "greedy_steps": "greedy decoding step by step: candidates, probabilities, margins",
}


def draw(name: str) -> Figure:
    """Compute and draw one figure. Call inside `gptlab.show.figures.style.drawing()`."""
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES)
    figure: Figure = importlib.import_module(f"gptlab.book.figures.{name}").figure()
    return figure


def write(names: Sequence[str], folder: Path) -> Iterator[Path]:
    """Draw the figures into `folder` as SVG and PNG; yield each path when it is written. OSError if it takes none."""
    from gptlab.show.figures.style import drawing, save

    for name in names:
        with drawing():
            yield from save(draw(name), folder, name)
