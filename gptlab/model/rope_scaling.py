"""How fast each pair of features turns: the frequencies of rotary positions, and how they are stretched.

Pair i of n/2 turns by f_i = base^(-2i/n) radians for each position, so its wavelength is 2 pi / f_i tokens. A model
that was trained on `original_context` tokens has seen no angles beyond them; each scaling brings those of `factor`
times as many back:

linear  f_i / factor: positions are squeezed (Chen et al. 2023)
ntk     base becomes base * factor^(n/(n-2)): the fastest pair stays, the slowest one is squeezed by factor, and those
        between by degrees ("NTK-aware", bloc97 2023)
yarn    pairs that turn more than beta_fast times within original_context stay, those that turn less than beta_slow
        times are squeezed by factor, a straight ramp lies between; cos and sin are multiplied by attention_factor, by
        default 0.1 ln(factor) + 1 (0 stands for that), so logits grow by its square (Peng et al. 2023)
llama3  wavelengths below original_context / high_freq_factor stay, those above original_context / low_freq_factor are
        squeezed by factor; between, the share of each runs straight in 1 / wavelength (Llama 3.1, 2024)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gptlab.errors import ConfigError, unknown, wrong_value

_OPTIONS = "model.options.position"
# What each scaling reads beside `factor`, with its default; None has to be said.
SCALINGS: dict[str, dict[str, float | None]] = {
    "none": {},
    "linear": {},
    "ntk": {},
    "yarn": {"original_context": None, "beta_fast": 32.0, "beta_slow": 1.0, "attention_factor": 0.0},
    "llama3": {"original_context": None, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}


def frequencies(dim: int, base: float, scaling: str, given: Mapping[str, float | None]) -> tuple[Tensor, float]:
    """(f_i of each of ceil(dim / 2) pairs in radians, float64; what cos and sin are multiplied by).

    `given`: what was set of `factor` and of what the scaling reads, else None. ConfigError for what cannot be.
    """
    known = _checked(dim, scaling, given)
    pairs = torch.arange((dim + 1) // 2, dtype=torch.float64)
    if scaling == "ntk":
        base = base * known["factor"] ** (dim / (dim - 2))
    plain = base ** (-2.0 * pairs / dim)
    if scaling == "linear":
        return plain / known["factor"], 1.0
    if scaling == "yarn":
        low, high = (
            dim * math.log(known["original_context"] / (turns * 2 * math.pi)) / (2 * math.log(base))
            for turns in (known["beta_fast"], known["beta_slow"])
        )
        low, high = max(math.floor(low), 0), min(math.ceil(high), dim - 1)
        squeezed = ((pairs - low) / (high - low or 0.001)).clamp(0, 1)
        size = known["attention_factor"] or 0.1 * math.log(known["factor"]) + 1
        return plain / known["factor"] * squeezed + plain * (1 - squeezed), size
    if scaling == "llama3":
        turns = known["original_context"] * plain / (2 * math.pi)  # within the original context
        kept = ((turns - known["low_freq_factor"]) / (known["high_freq_factor"] - known["low_freq_factor"])).clamp(0, 1)
        return plain / known["factor"] * (1 - kept) + plain * kept, 1.0
    return plain, 1.0


def _checked(dim: int, scaling: str, given: Mapping[str, float | None]) -> dict[str, float]:
    """What the scaling reads, complete."""
    if scaling not in SCALINGS:
        raise unknown(f"{_OPTIONS}.scaling", scaling, SCALINGS)
    reads = {} if scaling == "none" else {"factor": None, **SCALINGS[scaling]}
    for name, value in given.items():
        if value is not None and name not in reads:
            raise wrong_value(
                f"{_OPTIONS}.{name}",
                value,
                f"would be ignored, because {_OPTIONS}.scaling={scaling} does not read it.",
                code="rope-scaling-ignores",
                scaling=scaling,
            )
    known: dict[str, float] = {}
    for name, default in reads.items():
        value = given.get(name)
        value = default if value is None else value
        if value is None:
            raise ConfigError(
                f"{_OPTIONS}.scaling={scaling}: needs {_OPTIONS}.{name}.",
                code="rope-scaling-needs",
                key=f"{_OPTIONS}.scaling",
                value=scaling,
                needs=name,
            )
        known[name] = value
    _check_sizes(dim, scaling, known)
    return known


def _check_sizes(dim: int, scaling: str, known: Mapping[str, Any]) -> None:
    for name, least in (("factor", 1), ("original_context", 1), ("attention_factor", 0.0)):
        if name in known and not known[name] >= least:
            raise wrong_value(
                f"{_OPTIONS}.{name}", known[name], f"must be {least:g} or more.", code="rope-scaling-size", least=least
            )
    if scaling == "ntk" and dim <= 2:
        raise wrong_value(
            f"{_OPTIONS}.scaling",
            scaling,
            f"needs two pairs of features or more, and {dim} features turn.",
            code="rope-scaling-pairs",
            turned=dim,
        )
    for low, high in (("beta_slow", "beta_fast"), ("low_freq_factor", "high_freq_factor")):
        if low in known and not 0 < known[low] < known[high]:
            raise wrong_value(
                f"{_OPTIONS}.{low}",
                known[low],
                f"must lie above 0 and below {_OPTIONS}.{high}={known[high]:g}.",
                code="rope-scaling-order",
                other=known[high],
            )
