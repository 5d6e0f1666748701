"""The band around a mean over seeds: Student's t, 95 %, and only from three seeds up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

LEAST = 3  # with two seeds, the interval is 9 times as wide as their distance: it says nothing
LEVEL = 0.95
WORDS = "band: 95% t interval of the mean, dots: each seed at the end"


def t_band(values: Any) -> tuple[Array, Array, Array]:
    """Mean, lower and upper end for each column of `values` (seeds, places); NaN where a seed has no number."""
    import numpy as np
    from scipy.special import stdtrit

    table = np.asarray(values, dtype=float)
    seeds = len(table)
    mean = table.mean(axis=0)
    half = stdtrit(seeds - 1, (1 + LEVEL) / 2) * table.std(axis=0, ddof=1) / np.sqrt(seeds)
    return mean, mean - half, mean + half
