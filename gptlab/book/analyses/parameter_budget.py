"""Study `parameter_budget`: where the parameters live, and what tying saves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gptlab.analyses import Findings
from gptlab.book.figures.parameter_budget import draw, shares
from gptlab.config import Config
from gptlab.registry import register

SIZES = {(12, 768): "small", (24, 1024): "medium", (36, 1280): "large", (48, 1600): "XL"}  # layers, width


@register("analysis", "parameter_budget")
def parameter_budget(variants: Sequence[Config]) -> Findings:
    """Counts and shares by part of the model, a row per variant, smaller models first."""
    found = Findings()
    rows = []
    ordered = sorted(variants, key=lambda c: (c.model.n_layers * c.model.emb_dim**2, c.model.tie_weights))
    for config in ordered:
        total, parts = shares(config)
        how = "tied" if config.model.tie_weights else "untied"
        name = f"{config.model.n_layers}x{config.model.emb_dim}_{how}"
        size = SIZES.get((config.model.n_layers, config.model.emb_dim), name.replace(f"_{how}", ""))
        rows.append((f"{size}, {how}", total, parts))
        found.tables.setdefault("parts", []).extend(
            {"model": name, "part": part, "parameters": size, "percent": 100 * size / total}
            for part, size in parts.items()
        )
        found.summary.append((name, total, "parameters"))
        if parts["head"]:
            share = 100 * parts["head"] / total
            found.summary.append((f"{name}_head", share, "percent of them in the output head"))
    found.figures["parameter_budget"] = partial(draw, rows)
    return found
