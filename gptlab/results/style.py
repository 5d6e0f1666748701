"""How gptlab's figures look, and how they become files: the same bytes for the same data.

matplotlib is used through its object interface inside `drawing()`, so that neither its global settings nor a current
figure of the user's is touched.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlab.results.cells import printable
from gptlab.runs.files import make_folder, write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart by colour-blind readers. Hatches tell the same things apart in greyscale.
INK, GHOST, GRID = "#1b1b1b", "#b0b0b0", "#e6e6e6"
BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, YELLOW = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#f0e442",
)  # fmt: skip

RC: Any = {
    "figure.facecolor": "white",
    "savefig.dpi": 150,
    "font.family": "DejaVu Sans",  # ships with matplotlib, so a figure looks the same everywhere
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.edgecolor": "#777777",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "axes.labelcolor": INK,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "gptlab",  # otherwise the ids inside an SVG are drawn at random
    "svg.fonttype": "path",
}


@contextmanager
def drawing() -> Iterator[None]:
    """gptlab's style, and no other, inside; the user's settings again afterwards."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RC)
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a box in a label is no reason to stop
        yield


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write `figure` as SVG and PNG, each whole or not at all. Call inside `drawing()`."""
    make_folder(folder)
    paths = []
    for suffix, metadata in (("svg", {"Date": None}), ("png", {})):
        content = io.BytesIO()
        figure.savefig(content, format=suffix, metadata=metadata)
        write_bytes(folder / f"{name}.{suffix}", content.getvalue())
        paths.append(folder / f"{name}.{suffix}")
    return paths


def plain(text: str, most: int | None = None) -> str:
    """User text for a figure: control characters escaped, no mathematics from a dollar sign, shortened to `most`."""
    text = printable(text)
    if most and len(text) > most:
        text = f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
    return text.replace("$", r"\$")


def heading(figure: Figure, title: str, subtitle: str) -> None:
    """Title and subtitle at the top left, a fixed distance (in inches) from the edge at any figure height."""
    height = figure.get_figheight()
    figure.text(0.12 / figure.get_figwidth(), 1 - 0.14 / height, title, va="top", fontsize=12, fontweight="bold")
    figure.text(0.12 / figure.get_figwidth(), 1 - 0.40 / height, subtitle, va="top", fontsize=9, color="#444444")
