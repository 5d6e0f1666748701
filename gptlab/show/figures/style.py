"""How gptlab's figures look, and how they become files: the same bytes for the same data.

matplotlib is used through its object interface inside `drawing()`, so that neither its global settings nor a current
figure of the user's is touched.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlab.metrics import METRICS
from gptlab.show.figures import page
from gptlab.store.files import make_folder, write_bytes
from gptlab.texts import cut, cut_apart, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

# Okabe and Ito's palette, told apart by colour-blind readers. Hatches tell the same things apart in greyscale.
INK, GHOST, GRID = "#1b1b1b", "#b0b0b0", "#e6e6e6"
BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, YELLOW = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#f0e442",
)  # fmt: skip

# One look per line where several share a panel: colour, dashes and marker each tell them apart alone.
LINES: tuple[dict[str, Any], ...] = (
    {"color": INK, "linestyle": "-", "marker": "o"},
    {"color": BLUE, "linestyle": (0, (6, 2)), "marker": "s"},
    {"color": VERMILION, "linestyle": (0, (2, 1.4)), "marker": "^"},
    {"color": GREEN, "linestyle": (0, (7, 2, 1.5, 2)), "marker": "D"},
    {"color": PURPLE, "linestyle": (0, (4, 1.5, 1, 1.5, 1, 1.5)), "marker": "v"},
    {"color": ORANGE, "linestyle": (0, (1, 1)), "marker": "P"},
)

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


JOINT = "  \N{MIDDLE DOT}  "
HEADING = "heading"  # what title and subtitle are labelled, so that they can be left out
# No time of writing in a file: the same figure is the same bytes.
UNDATED: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


@contextmanager
def drawing() -> Iterator[None]:
    """gptlab's style, and no other, inside; the user's settings again afterwards."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RC)
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a box in a label is no reason to stop
        yield


def svg(figure: Figure) -> bytes:
    """The figure as an SVG file: the same bytes each time. Call inside `drawing()`."""
    content = io.BytesIO()
    figure.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue()


def save(
    figure: Figure, folder: Path, name: str, formats: Sequence[str] = ("svg", "png"), *, title: bool = True
) -> list[Path]:
    """Write `figure` in each format, whole or not at all; without `title`, cropped. Call inside `drawing()`."""
    make_folder(folder)
    for text in figure.texts[:] if not title else ():
        if text.get_label() == HEADING:
            text.remove()
    paths = []
    for suffix in formats:
        content = io.BytesIO()
        box = None if title else _below_title(figure)
        figure.savefig(content, format=suffix, metadata=UNDATED.get(suffix), bbox_inches=box)
        write_bytes(folder / f"{name}.{suffix}", content.getvalue())
        paths.append(folder / f"{name}.{suffix}")
    return paths


def _below_title(figure: Figure) -> Bbox:
    """The whole figure but for the empty space at its top: its width stays what was asked for."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.transforms import Bbox

    used = figure.get_tightbbox(FigureCanvasAgg(figure).get_renderer())  # type: ignore[no-untyped-call]
    return Bbox([[0, 0], [figure.get_figwidth(), min(used.y1 + 0.05, figure.get_figheight())]])


def plain(text: str, most: int | None = None) -> str:
    """User text for a figure: control characters escaped, no mathematics from a dollar sign, shortened to `most`."""
    text = printable(text)
    return (cut(text, most) if most else text).replace("$", r"\$")


def apart(labels: Sequence[str], most: int) -> list[str]:
    """User texts of one figure, each as `plain` has it, and no two of them cut to the same one."""
    return [text.replace("$", r"\$") for text in cut_apart([printable(label) for label in labels], most)]


def unit(value: float, noun: str) -> tuple[float, str]:
    """The divisor that brings `value` below a thousand, and the axis label: (1e6, "million tokens")."""
    for divisor, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if value >= divisor:
            return (1e15, f"10$^{{15}}$ {noun}") if value >= 1e15 else (divisor, f"{word} {noun}")
    return 1, noun


def named(metric: str) -> str:
    """The axis label of a metric: `validation loss (nats/token)`; of one that nobody declared, its name."""
    known = METRICS.get(metric.split("/", 1)[0])
    return plain(f"{metric.replace('_', ' ')} ({known.unit})" if known else metric.replace("_", " "))


def heading(figure: Figure, title: str, subtitle: str) -> None:
    """Title and subtitle at the top left, a fixed distance (in inches) from the edge at any figure height.

    Lines that do not fit into the width are broken, and the figure becomes as much taller. Call it last.
    """
    width = figure.get_figwidth()
    titles = page.wrapped(title, width - 0.2, 12, bold=True)
    words = page.packed(subtitle, JOINT, width - 0.2, 9)
    below = 0.40 + 0.20 * (len(titles) - 1)
    page.grow(figure, 0.20 * (len(titles) - 1) + 0.155 * (len(words) - 1))
    left, height = 0.12 / width, figure.get_figheight()
    looks: tuple[tuple[float, list[str], dict[str, Any]], ...] = (
        (0.14, titles, {"fontsize": 12, "fontweight": "bold"}),
        (below, words, {"fontsize": 9, "color": "#444444"}),
    )
    for top, text, look in looks:
        figure.text(left, 1 - top / height, "\n".join(text), va="top", label=HEADING, **look)


def joined(words: Iterable[str]) -> str:
    """Facts of a subtitle with a dot between them; empty ones are left out."""
    return JOINT.join(word for word in words if word)
