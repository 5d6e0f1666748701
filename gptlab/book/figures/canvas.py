"""What the seven figures share: panels placed in inches, and notes beside what they are about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gptlab.show.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def blank(width: float, height: float, title: str, subtitle: str) -> Figure:
    """An empty figure with its heading."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    style.heading(figure, title, subtitle)
    return figure


def panel(figure: Figure, left: float, top: float, width: float, height: float, **settings: Any) -> Axes:
    """Axes with the given size, all in inches, `top` measured from the upper edge."""
    across, high = figure.get_size_inches()
    place = (left / across, 1 - (top + height) / high, width / across, height / high)
    axes: Axes = figure.add_axes(place, **settings)
    return axes


def note(axes: Axes, text: str, at: tuple[float, float], to: tuple[float, float], **settings: Any) -> None:
    """`text` at `to` (data coordinates) with a thin line to the point `at`."""
    look: dict[str, Any] = {"arrowstyle": "-", "color": style.INK, "linewidth": 0.7, "shrinkB": 3}
    axes.annotate(text, at, to, fontsize=8.5, arrowprops=look, zorder=6, **settings)


def bytes_words(size: int) -> str:
    """24.0 KiB."""
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{size:,} B" if unit == "B" else f"{value:,.1f} {unit}"
