"""How many seeds a difference takes: the power of the paired t test, at whatever level its correction left it.

The power is integrated over the chi distribution of the estimated spread. scipy's noncentral t has holes far out, where
a search may step into.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from gptlab.comparing.statistics import ALPHA

POWER = 0.8
MOST_SEEDS = 1000  # as far as `n_needed` looks
_NODES = 400
_REACH = 9.0  # of the chi distribution, whose standard deviation is below one


def detectable(n: int, alpha: float = ALPHA) -> float | None:
    """The smallest true mean difference, in sd of the differences, that n pairs find with 80 % power at `alpha`.

    None below three pairs.
    """
    if n < 3:
        return None
    from scipy import special

    target = float(special.ndtri(POWER))
    critical = float(special.stdtrit(n - 1, 1 - alpha / 2))
    one, two = critical, critical + 2 * target  # in units of 1 / sqrt(n)
    miss = float(special.ndtri(power(one / math.sqrt(n), n, alpha))) - target
    for _ in range(50):  # a secant on the probit of the power, which is nearly straight
        if one == two or abs(miss) < 1e-13:
            break
        other = float(special.ndtri(power(two / math.sqrt(n), n, alpha))) - target
        one, two, miss = two, two - other * (two - one) / (other - miss) if other != miss else two, other
    return two / math.sqrt(n)


def n_needed(effect: float, alpha: float = ALPHA) -> int | None:
    """How many pairs find a true mean difference of `effect` sd with 80 % power at `alpha`; None beyond a thousand."""
    low, high = 3, MOST_SEEDS
    if power(abs(effect), high, alpha) < POWER:
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if power(abs(effect), middle, alpha) >= POWER else (middle + 1, high)
    return low


def power(effect: float, n: int, alpha: float = ALPHA) -> float:
    """The chance that n pairs find a true difference of `effect` sd, on the right side: the other tail is left out."""
    from scipy import special

    critical = special.stdtrit(n - 1, 1 - alpha / 2)
    spread, weight = chi_nodes(n - 1)
    return float(weight @ special.ndtr(effect * math.sqrt(n) - critical * spread))


@functools.cache
def chi_nodes(df: int) -> tuple[Any, Any]:
    """Nodes and weights of the distribution of s / sigma with `df` degrees of freedom (Gauss-Legendre)."""
    import numpy as np

    places, weights = _legendre()
    low, high = max(0.0, math.sqrt(df) - _REACH), math.sqrt(df) + _REACH
    chi = low + (places + 1) / 2 * (high - low)
    logs = (df - 1) * np.log(chi) - chi**2 / 2 - (df / 2 - 1) * math.log(2) - math.lgamma(df / 2)
    mass = np.exp(logs) * weights
    return chi / math.sqrt(df), mass / mass.sum()


@functools.cache
def _legendre() -> tuple[Any, Any]:
    import numpy as np

    return np.polynomial.legendre.leggauss(_NODES)
