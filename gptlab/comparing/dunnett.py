"""Few seeds, many variants: one spread for all of them, and Dunnett's test of many against one (`--pooled`).

Every pair alone estimates its noise from n - 1 differences. Where all arms are equally noisy, what is left of all
values without the mean of their arm and of their seed estimates the same noise from (arms - 1)(n - 1) of them: with
five seeds and six arms 20 degrees of freedom in place of 4. Dunnett (1955) knows that all differences share a baseline.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gptlab.comparing.power import chi_nodes


@dataclass(frozen=True)
class Residual:
    """What arm and seed do not explain: its s.d. and degrees of freedom. A difference of two arms has the standard
    error sd * sqrt(2 / seeds)."""

    sd: float
    df: int
    seeds: int

    @property
    def error(self) -> float:
        """Standard error of a difference of two arms' means."""
        return self.sd * math.sqrt(2 / self.seeds)


def residual(arms: Sequence[Sequence[float]]) -> Residual | None:
    """The pooled residual of arms with one value for each of the same seeds, in one order. None below two of either."""
    import numpy as np

    values: Any = np.asarray(arms, dtype=np.float64)
    if values.ndim != 2 or min(values.shape) < 2:
        return None
    left = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + values.mean()
    df = (values.shape[0] - 1) * (values.shape[1] - 1)
    return Residual(math.sqrt(float((left**2).sum()) / df), df, values.shape[1])


def dunnett(t: float, variants: int, df: int) -> float:
    """The chance that the largest of `variants` two-sided t, all against one baseline and with one pooled s.d., is at
    least `t` where no variant differs. Arms of equal size: any two t are correlated by one half.
    """
    from scipy import special

    spread, weight = chi_nodes(df)
    z, density = _normal_nodes()
    reach = math.sqrt(2) * abs(t) * spread[:, None]
    inside = (special.ndtr(z + reach) - special.ndtr(z - reach)) ** variants
    return float(min(1.0, max(0.0, 1 - weight @ (inside @ density))))


@functools.cache
def _normal_nodes() -> tuple[Any, Any]:
    """Nodes and weights of the standard normal distribution (Gauss-Legendre from -9 to 9)."""
    import numpy as np

    places, weights = np.polynomial.legendre.leggauss(160)
    return 9 * places, 9 * weights * np.exp(-((9 * places) ** 2) / 2) / math.sqrt(2 * math.pi)
