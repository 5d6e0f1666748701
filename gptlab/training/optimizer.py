"""The optimizer of a run, whichever is chosen, behind one face.

Weight decay reaches matrices; embeddings by `decay_embeddings` (a tied table counts as one), norms and biases by
`decay_vectors`. With the kernel `flat` all weights lie in one buffer, if the optimizer works on each number by itself:
the update is the same, and a step of a small model does not spend its time in 35 calls where one will do.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn

from gptlab import registry
from gptlab.config import TrainConfig
from gptlab.model.layers import HasAfterStep
from gptlab.model.roles import parameter_roles


class Updates:
    """What happens between a gradient and the next step: norm, clipping, the update, and clearing."""

    def __init__(
        self,
        model: nn.Module,
        train: TrainConfig,
        rate_scales: Mapping[str, float] | None = None,
        *,
        flat: bool = False,
    ) -> None:
        """`rate_scales`: parameter name -> factor on its learning rate, where the init asks for one (muP).

        `flat`: lay all weights into one buffer, if the optimizer works on each number by itself.
        """
        self._changing = [module for module in model.modules() if isinstance(module, HasAfterStep)]
        self.peak, self.clip_at = train.learning_rate, train.clip
        groups = _groups(model, train, rate_scales)
        self._weights = [weight for group in groups for weight in group["params"]]
        chosen = registry.get("optimizer", train.optimizer)
        self._flat = _Flat(groups) if flat and chosen.facts["elementwise"] else None
        if chosen.facts["elementwise"]:
            groups = [{key: value for key, value in group.items() if key != "roles"} for group in groups]
        made = chosen.make(vars(train), train.options.get("optimizer", {}), groups)
        self.optimizers: list[torch.optim.Optimizer] = made if isinstance(made, list) else [made]

    def set_rate(self, factor: float) -> None:
        """The learning rate of the next step, as a share of the peak."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.peak * factor * group["rate_scale"]

    @torch.no_grad()
    def clip(self) -> Tensor:
        """Scale the gradient down to the norm that the run allows. Scalar: its norm before that."""
        if self._flat:
            grads = [self._flat.gather()]
            norm = torch.linalg.vector_norm(grads[0])
        else:
            grads = [weight.grad for weight in self._weights if weight.grad is not None]
            norm = torch.nn.utils.get_total_norm(grads)
        if self.clip_at is not None:
            torch._foreach_mul_(grads, (self.clip_at / (norm + 1e-6)).clamp(max=1.0))
        return norm

    @torch.no_grad()  # `unwrap` takes off torch's own
    def step(self) -> None:
        """Update the weights, after `clip`, let go of the gradient, and have modules do what they do after a step."""
        for optimizer in self.optimizers:
            # torch wraps `step` for profilers and hooks, which a small model would pay for with a tenth of its time.
            update = unwrap(type(optimizer).step) if self._flat else type(optimizer).step
            update(optimizer)
        for weight in self._weights:
            weight.grad = None
        for module in self._changing:
            module.after_step()

    def state(self) -> list[dict[str, Any]]:
        """All that the next step depends on, weights aside."""
        return [optimizer.state_dict() for optimizer in self.optimizers]

    def load_state(self, states: list[dict[str, Any]]) -> None:
        """Put back what `state` gave. ValueError where it does not fit."""
        for optimizer, state in zip(self.optimizers, states, strict=True):
            optimizer.load_state_dict(state)


def _groups(
    model: nn.Module, train: TrainConfig, rate_scales: Mapping[str, float] | None = None
) -> list[dict[str, Any]]:
    """Parameters by what happens to them: {params, weight_decay, rate_scale, roles}."""
    roles = parameter_roles(model)
    groups: dict[tuple[float, float], dict[str, list[Any]]] = {}
    for name, weight in model.named_parameters():
        role = roles[name]
        decayed = {"embedding": train.decay_embeddings, "vector": train.decay_vectors, "gain": train.decay_vectors}
        key = (train.weight_decay if decayed.get(role, True) else 0.0, (rate_scales or {}).get(name, 1.0))
        group = groups.setdefault(key, {"params": [], "roles": []})
        group["params"].append(weight)
        group["roles"].append(role)
    return [{**group, "weight_decay": decay, "rate_scale": rate} for (decay, rate), group in groups.items()]


class _Flat:
    """One buffer for all weights, which become views of it, and one for all gradients. A group is a piece of both."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        self._weights = [weight for group in groups for weight in group["params"]]
        values = torch.cat([weight.detach().flatten() for weight in self._weights])
        self._grads = torch.zeros_like(values)
        sizes = [weight.numel() for weight in self._weights]
        for weight, part in zip(self._weights, values.split(sizes), strict=True):
            weight.data = part.view(weight.shape)
        self._places = [
            part.view(weight.shape) for weight, part in zip(self._weights, self._grads.split(sizes), strict=True)
        ]
        lengths = [sum(weight.numel() for weight in group["params"]) for group in groups]
        pieces = zip(groups, values.split(lengths), self._grads.split(lengths), strict=True)
        for group, piece, grads in pieces:
            group["params"] = [nn.Parameter(piece)]
            group["params"][0].grad = grads

    def gather(self) -> Tensor:
        """All gradients in their buffer; that of a weight which nothing used is 0."""
        grads = [weight.grad for weight in self._weights]
        if any(grad is None for grad in grads):
            grads = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in self._weights]
        torch._foreach_copy_(self._places, grads)
        return self._grads
