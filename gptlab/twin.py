"""What was solved so that a variant costs what its baseline costs: the record that a plan keeps of a matched twin."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

COSTS = {
    "params": "parameters",
    "params_active": "parameters that a token meets",
    "params_body": "parameters of the blocks",
    "flops": "FLOPs per token",
    "training_flops": "training FLOPs",
}


FRAME = ("token_embedding", "position", "head")  # parts of a model outside its blocks, for `params_body`
_NUMBERS = ("start", "value", "target", "plain", "reached", "tolerance")


@dataclass(frozen=True)
class Twin:
    """One variant's. `cost`: one of COSTS, as counted: `target` of the baseline, `plain` before, `reached` after."""

    cost: str
    by: str  # the key that was solved
    start: float  # its value before, and after:
    value: float
    target: float
    plain: float
    reached: float
    tolerance: float  # percent
    paired: bool  # whether the initial weights still share their random numbers with the variant's and the baseline's
    of: str = ""  # label of the variant as it was declared, where that is planned too

    @property
    def residual(self) -> float:
        """What is left between the costs, in percent of the baseline's."""
        return percent_off(self.reached, self.target)

    @property
    def words(self) -> str:
        """`hidden_dim 128 -> 85: parameters 43,650, baseline 43,712 (-0.14 %, was +19.2 %)`."""
        key = self.by.removeprefix("model.")
        solved = f"{key} {_said(self.start)} -> {_said(self.value)}"
        solved = f"{key} stays {_said(self.value)}" if self.start == self.value else solved
        was = "" if self.start == self.value else f", was {percent_off(self.plain, self.target):+.3g} %"
        cost = f"{COSTS[self.cost]} {_said(self.reached)}, baseline {_said(self.target)} ({self.residual:+.2g} %{was})"
        return f"{solved}: {cost}{'' if self.paired else '; no longer paired'}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "residual_percent": self.residual}


def percent_off(cost: float, target: float) -> float:
    """How far a cost is from its target, in percent; of a target of nothing, 0 where it is met."""
    return 100 * (cost / target - 1) if target else 0.0 if cost == target else float("inf")


def parsed(recorded: Any) -> dict[str, Twin]:
    """Label -> twin, from what a plan has under `match`. An entry that is not as it should be is passed over."""
    twins = recorded.get("twins") if isinstance(recorded, Mapping) else None
    found = {}
    for label, entry in (twins if isinstance(twins, Mapping) else {}).items():
        if not isinstance(entry, Mapping) or entry.get("cost") not in COSTS:
            continue
        numbers = {name: n for name in _NUMBERS if isinstance(n := entry.get(name), int | float) and math.isfinite(n)}
        if len(numbers) == len(_NUMBERS):
            texts = {"cost": entry["cost"], "by": str(entry.get("by")), "of": str(entry.get("of") or "")}
            fields: dict[str, Any] = {**texts, **numbers, "paired": entry.get("paired") is True}
            found[str(label)] = Twin(**fields)
    return found


def _said(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) and abs(number) < 1e9 else f"{number:.5g}"
