"""The optimizers by name, and how a plugin adds one.

    @register("optimizer", "lion", elementwise=True)
    def lion(groups: Groups, beta1: float, beta2: float, weight: float = 1.0) -> torch.optim.Optimizer:
        '''One sentence about it.'''

makes `train.optimizer=lion` and `train.options.optimizer.weight` exist. It is handed the parameters in groups, each a
dict of torch's (`params`, `weight_decay`) with `rate_scale` (the factor on its rate; the loop sets `lr` before each
step) and `roles`, what each parameter is for (`gptlab.model.roles`). A parameter named like a key of `train` is that
key; every other one is an option. It returns one of torch's optimizers or a list of them.

`elementwise` says that each number is updated by itself. Then all weights may lie in one buffer, and the
groups have no roles. `states` (2) is how many numbers it keeps for each weight, for the estimate of memory.
"""

from __future__ import annotations

from typing import Any

import torch

from gptlab.registry import register

Groups = list[dict[str, Any]]


@register("optimizer", "adamw", elementwise=True)
def adamw(groups: Groups, learning_rate: float, beta1: float, beta2: float, eps: float) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(beta1, beta2), eps=eps, fused=True)


@register("optimizer", "sgd", elementwise=True, states=1)
def sgd(groups: Groups, learning_rate: float, momentum: float) -> torch.optim.Optimizer:
    """Stochastic gradient descent with momentum."""
    return torch.optim.SGD(groups, lr=learning_rate, momentum=momentum, fused=True)


@register("optimizer", "muon")
def muon(
    groups: Groups, learning_rate: float, beta1: float, beta2: float, eps: float, momentum: float
) -> list[torch.optim.Optimizer]:
    """Orthogonalised momentum for the matrices of the blocks (Jordan et al. 2024), AdamW for all else."""
    hidden, rest = _split(groups)
    optimizers: list[torch.optim.Optimizer] = []
    if rest:
        optimizers.append(adamw(rest, learning_rate, beta1, beta2, eps))
    if hidden:
        # Updates as large as AdamW's usually are (Liu et al. 2025), so that one learning rate serves both.
        optimizers.append(torch.optim.Muon(hidden, lr=learning_rate, momentum=momentum, adjust_lr_fn="match_rms_adamw"))
    return optimizers


def _split(groups: Groups) -> tuple[Groups, Groups]:
    """(groups of the two-dimensional matrices, groups of all other parameters)."""
    parts: tuple[Groups, Groups] = ([], [])
    for group in groups:
        pairs = zip(group["params"], group["roles"], strict=True)
        flags = [role == "matrix" and weight.dim() == 2 for weight, role in pairs]
        for part, wanted in zip(parts, (True, False), strict=True):
            places = [place for place, flag in enumerate(flags) if flag is wanted]
            if places:
                part.append({**group, **{key: [group[key][place] for place in places] for key in ("params", "roles")}})
    return parts
