"""The grids as readers see them: columns for their level, and what is the same in every row said once, in words."""

from __future__ import annotations

from gptlab.comparing.comparison import Comparison
from gptlab.show.grid import EXPLORATORY, Grid, grids

SAID_ONCE = ("seeds", "note", "parameters", "parameters_percent", "flops_percent")  # where all rows agree
OF_THE_VARIANT = ("changed", "seeds", "parameters", "parameters_percent", "flops_percent")  # said by the first table
# Of all metrics but the first, only what a reader compares; `--metric M` shows all of M's columns, CSV everybody's.
SHORT = ("variant", "mean", "half_width", "difference", "low", "high", "p_corrected", "verdict", "note")


def views(comparison: Comparison, level: int) -> list[tuple[Grid, str]]:
    """Each grid with the columns for `level`, and in words what all of its rows have in common."""
    found = []
    for number, whole in enumerate(grids(comparison)):
        grid = whole.at(level)
        if number > len(comparison.step_metrics):
            grid = grid.without([column.name for column in grid.columns if column.name not in SHORT])
        if number:
            grid = grid.without(OF_THE_VARIANT)
        common = _common(grid)
        grid = grid.without(list(common))
        if number and common.get("note") == ("note", EXPLORATORY):  # its title says so
            del common["note"]
        words = [text if name == "note" else f"{header} {text}" for name, (header, text) in common.items()]
        found.append((grid, f"In every row: {'; '.join(words)}." if words else ""))
    return found


def _common(grid: Grid) -> dict[str, tuple[str, str]]:
    """Column -> its header and the text that all rows have; all but the baseline's, where that one has none."""
    found = {}
    for place, column in enumerate(grid.columns):
        texts = [line[place].text for line in grid.lines]
        texts = texts if len(texts) < 2 or texts[0] else texts[1:]
        if column.name in SAID_ONCE and texts[0] and len(set(texts)) == 1:
            found[column.name] = column.header, texts[0]
    return found
