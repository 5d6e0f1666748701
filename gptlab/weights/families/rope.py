"""Rotary positions as config.json says them: `rope_parameters` of today, `rope_theta` and `rope_scaling` of before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gptlab.errors import GptlabError
from gptlab.weights.families.family import option
from gptlab.weights.settings import Settings

# Option here -> its name there, of what each scaling reads; `none` is called default there.
_STRETCHED = {"factor": "factor", "original_context": "original_max_position_embeddings"}
_SCALINGS: dict[str, dict[str, str]] = {
    "none": {},
    "linear": {"factor": "factor"},
    "llama3": _STRETCHED | {"low_freq_factor": "low_freq_factor", "high_freq_factor": "high_freq_factor"},
    "yarn": _STRETCHED | {"beta_fast": "beta_fast", "beta_slow": "beta_slow", "attention_factor": "attention_factor"},
}


def position_options(
    given: Settings, fraction: float | None = None, old_base: str = "rope_theta", base: float = 10_000.0
) -> dict[str, Any]:
    """`options.position` of a model. `fraction`: of a head that turns, by default; None where the class turns all."""
    node = given.node("rope_parameters")
    if not node:
        node = {"rope_theta": given.number(old_base, base), **given.node("rope_scaling")}
        for old in ("partial_rotary_factor", "rotary_pct"):
            if fraction is not None and old in given.given:
                node["partial_rotary_factor"] = given.number(old, fraction)
    if "original_max_position_embeddings" not in node and node.get("rope_type", node.get("type")) == "yarn":
        node["original_max_position_embeddings"] = given.whole("max_position_embeddings", 2048)
    return of_node(node, given.where, fraction, base)


def of_node(node: Mapping[str, Any], where: str, fraction: float | None, base: float) -> dict[str, Any]:
    """The same from one node of `rope_parameters`."""
    called = str(node.get("rope_type", node.get("type", "default")))
    scaling = "none" if called == "default" else called
    known = {"rope_type", "type", "rope_theta", "partial_rotary_factor", *_SCALINGS.get(scaling, {}).values()}
    strange = sorted(key for key, value in node.items() if key not in known and value is not None)
    turned = node.get("partial_rotary_factor", 1.0 if fraction is None else fraction)
    numbers = [value for key, value in node.items() if key in known - {"rope_type", "type"} and value is not None]
    wrong = [value for value in numbers if isinstance(value, bool) or not isinstance(value, (int, float))]
    if scaling not in _SCALINGS or strange or wrong or (fraction is None and turned != 1.0):
        raise GptlabError(
            f"{where}: rope_parameters={dict(node)}: has no counterpart here; what has: rope_type default, linear, "
            "llama3 or yarn, with their own numbers.",
            code="weights-rope",
            file=where,
            value=dict(node),
            names=strange,
        )
    found: dict[str, Any] = {"base": float(node.get("rope_theta", base))}
    if turned != 1.0:
        found["fraction"] = float(turned)
    if scaling != "none":
        found["scaling"] = scaling
    for ours, theirs in _SCALINGS[scaling].items():
        if node.get(theirs) is not None:
            found[ours] = int(node[theirs]) if ours == "original_context" else float(node[theirs])
    return found


def rope_parameters(model: Mapping[str, Any]) -> dict[str, Any]:
    """The node for a model, as far as there are words for it there."""
    scaling = option(model, "position", "scaling", "none")
    found: dict[str, Any] = {"rope_type": "default" if scaling == "none" else scaling}
    if scaling not in _SCALINGS:
        found["rope_type"] = "default"
    found["rope_theta"] = option(model, "position", "base", 10_000.0)
    if (fraction := option(model, "position", "fraction", 1.0)) != 1.0:
        found["partial_rotary_factor"] = fraction
    for ours, theirs in _SCALINGS.get(scaling, {}).items():
        if (value := option(model, "position", ours)) is not None and not (ours == "attention_factor" and not value):
            found[theirs] = value
    return found
