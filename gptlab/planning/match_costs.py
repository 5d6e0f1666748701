"""What a variant costs, in each of the ways that a match can ask for: counted, never by a formula."""

from __future__ import annotations

from gptlab.config import Config
from gptlab.errors import wrong_value
from gptlab.twin import COSTS, FRAME


def cost_of(config: Config, cost: str) -> float:
    """What a variant costs, counted on the model that is built. ConfigError where it cannot be counted."""
    from gptlab.model import skeleton
    from gptlab.probes.parameters import counted, group_sizes, idle_parameters
    from gptlab.training.budget import Budget

    if cost in ("params", "params_active", "params_body"):
        model = skeleton(config.model)
        parts = group_sizes(model)
        if cost == "params_active":
            return parts.total() - idle_parameters(model)
        return sum(size for part, size in parts.items() if cost == "params" or part not in FRAME)
    if cost == "flops":
        counts = counted(config)
        why = counts.missing.get("flops_forward_per_token", "")
        number: float = counts.numbers.get("flops_forward_per_token", 0)
    else:
        if config.train.budget is None:
            raise wrong_value("match", cost, "nothing is trained (train.budget is null).", code="match-untrained")
        budget = Budget.of(config)
        if budget.steps is None:
            raise wrong_value(
                "match", cost, "train.budget_unit=seconds does not say how many steps that is.", code="match-in-seconds"
            )
        why, number = budget.uncounted, budget.steps * budget.flops_per_step
    if why:
        raise wrong_value("match", cost, f"{COSTS[cost]} cannot be counted, because {why}.", code="match-uncountable")
    return number
