"""One spread for all arms (`--pooled`): the cells of the primary metric tested with what all of them say about noise.

A declared choice, not the default: it assumes that arms are equally noisy and that a seed moves all of them alike. What
the study itself says about that is put into words, to stand under the table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gptlab.comparing import statistics as stats
from gptlab.comparing.comparison import TOO_FEW, Cell, replace
from gptlab.comparing.dunnett import Residual, dunnett, residual
from gptlab.comparing.variants import Variant
from gptlab.comparing.which_metrics import declared
from gptlab.errors import ConfigError
from gptlab.margin import Margin


def pool_noise(variants: Sequence[Variant], primary: str, margin: Margin | None) -> str:
    """Test the primary metric of all complete variants by their pooled residual, and say what that assumes.

    ConfigError where there are not two variants, on all their seeds, with one baseline.
    """
    key, about = (primary, None), declared(primary)
    ratio = about.kind == "positive_scale"
    planned = sum(variant.base is not None for variant in variants)
    arms = [v for v in variants if v.base and _is_complete(v.cells[key])]
    bases = {v.base.key: v.base for v in arms if v.base}
    if len(arms) < 2 or len(bases) > 1:
        raise ConfigError(
            f"--pooled: takes two variants or more with all their planned seeds and one baseline; {len(arms)} "
            f"{'have' if len(arms) != 1 else 'has'} them, with {len(bases)} baseline{'s' if len(bases) != 1 else ''}.",
            code="pooled-needs-variants",
            variants=len(arms),
            baselines=len(bases),
        )
    base = next(iter(bases.values()))
    seeds = sorted(set.intersection(*({*v.values[key]} for v in (base, *arms))))
    table = [[v.values[key][seed] for seed in seeds] for v in (base, *arms)]
    if ratio:
        table = [[math.log(value) for value in row] for row in table]
    found = residual(table)
    if found is None or not found.sd:
        raise ConfigError(
            f"--pooled: takes two seeds or more that all variants have, with some noise; {len(seeds)} here.",
            code="pooled-needs-seeds",
            seeds=seeds,
        )
    spreads = sorted(cell.spread for cell in (v.cells[key] for v in arms) if cell.spread is not None)
    for variant, row in zip(arms, table[1:], strict=True):
        difference = stats.mean(row) - stats.mean(table[0])
        variant.cells[key] = _tested(variant.cells[key], difference, found, planned, ratio)
        if margin:
            low, high = margin.bounds(about, stats.mean([base.values[key][seed] for seed in seeds]))
            p = stats.equivalence_by(difference, found.error, found.df, low, high)
            variant.cells[key] = replace(variant.cells[key], p_equivalence=p)
    return _assumed(found, len(arms) + 1, spreads, planned)


def _is_complete(cell: Cell) -> bool:
    return cell.pairs >= 2 and not cell.lost and cell.verdict in ("", TOO_FEW)


def _tested(cell: Cell, difference: float, found: Residual, planned: int, ratio: bool) -> Cell:
    t = difference / found.error
    reach = stats.t_quantile(found.df) * found.error
    low, high = difference - reach, difference + reach
    return replace(
        cell,
        low=math.exp(low) if ratio else low,
        high=math.exp(high) if ratio else high,
        interval="t",
        p=dunnett(t, 1, found.df),
        p_corrected=dunnett(t, planned, found.df),
        p_sign_flip=None,
        spread=None,  # of this pair alone: no part of the test
        effect=None,
        verdict="",
        reason="",
    )


def _assumed(found: Residual, arms: int, spreads: Sequence[float], planned: int) -> str:
    words = (
        f"Pooled: one residual s.d. ({found.sd:.3g}, {found.df} degrees of freedom) over {arms} arms and {found.seeds} "
        f"seeds, and Dunnett's test over {planned} planned variants. It assumes that all arms are equally noisy and "
        "that a seed moves all of them alike"
    )
    if len(spreads) < 2 or not spreads[0]:
        return f"{words}."
    ratio = spreads[-1] / spreads[0]
    far = ", far from equal: read the tables without --pooled too" if ratio > 3 else ""
    return f"{words}; here the s.d. of the paired differences run from {spreads[0]:.3g} to {spreads[-1]:.3g}{far}."
