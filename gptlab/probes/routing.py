"""What a router does with the tokens of one batch, read from outside: how sure it is, and how busy its experts are."""

from __future__ import annotations

import torch

from gptlab.model.experts.routing import Routing


def of_routing(routing: Routing) -> dict[str, float]:
    """Entropy of a token's shares in nats (ln n_experts where all are equal), load of the busiest expert over the mean
    (1 where all are equal), and the fraction of experts without a token."""
    load = routing.load().double()
    return {
        "router_entropy": torch.special.entr(routing.shares()).sum(-1).mean().item(),
        "expert_load_max": (load.max() / load.mean()).item(),
        "idle_experts": (load == 0).double().mean().item(),
    }


def loads(routing: Routing) -> list[float]:
    """Tokens of each expert over the mean of all."""
    load = routing.load().double()
    shares: list[float] = (load / load.mean()).tolist()
    return shares
