"""The optimizers of a run behind one face: AdamW, SGD, or Muon with AdamW for what Muon is not for.

Weight decay reaches matrices; embeddings by `decay_embeddings` (a tied table counts as one), norms and biases by
`decay_vectors`. A small model's weights are laid into one buffer per group: the update is elementwise, so the numbers
are the same, and one call instead of one per tensor is what a step of the toy mostly costs otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from gptlab.config import TrainConfig

FLAT_BELOW = 2**20  # weights


class Updates:
    """What happens between a gradient and the next step: norm, clipping, the update, and clearing."""

    def __init__(self, model: nn.Module, train: TrainConfig) -> None:
        self.peak, self.clip_at = train.learning_rate, train.clip
        groups = _groups(model, train)
        muon = [group for group in groups if group["muon"]]
        self._weights = [weight for group in groups for weight in group["params"]]
        self._buffers: list[Tensor] = []
        if not muon and sum(weight.numel() for weight in self._weights) < FLAT_BELOW:
            for group in groups:
                group["params"] = [_flatten(group["params"])]
            self._buffers = [group["params"][0] for group in groups]
        self.optimizers = _optimizers(groups, train)

    def set_rate(self, factor: float) -> None:
        """The learning rate of the next step, as a share of the peak."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.peak * factor

    @torch.no_grad()
    def clip(self) -> Tensor:
        """Scale the gradient down to the norm that the run allows. Scalar: its norm before that."""
        grads = self._grads()
        norm = torch.nn.utils.get_total_norm(grads)
        if self.clip_at is not None:
            scale = (self.clip_at / (norm + 1e-6)).clamp(max=1.0)
            torch._foreach_mul_(grads, scale)
        return norm

    def step(self) -> None:
        """Update the weights, and let go of the gradient."""
        for optimizer in self.optimizers:
            optimizer.step()
        for buffer in self._buffers:
            assert buffer.grad is not None
            buffer.grad.zero_()
        if not self._buffers:
            for weight in self._weights:
                weight.grad = None

    def state(self) -> list[dict[str, Any]]:
        """All that the next step depends on, weights aside."""
        return [optimizer.state_dict() for optimizer in self.optimizers]

    def load_state(self, states: list[dict[str, Any]]) -> None:
        """Put back what `state` gave. ValueError where it does not fit."""
        for optimizer, state in zip(self.optimizers, states, strict=True):
            optimizer.load_state_dict(state)

    def _grads(self) -> list[Tensor]:
        holders = self._buffers or self._weights
        return [holder.grad for holder in holders if holder.grad is not None]


def _groups(model: nn.Module, train: TrainConfig) -> list[dict[str, Any]]:
    """Parameters by what happens to them: {params, weight_decay, muon}."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    head = id(getattr(getattr(model, "out_head", None), "weight", None))
    groups: dict[tuple[float, bool], list[Tensor]] = {}
    for weight in model.parameters():
        table, vector = id(weight) in tables, weight.dim() < 2
        decayed = train.decay_embeddings if table else train.decay_vectors if vector else True
        muon = train.optimizer == "muon" and weight.dim() == 2 and not table and id(weight) != head
        groups.setdefault((train.weight_decay if decayed else 0.0, muon), []).append(weight)
    return [{"params": weights, "weight_decay": decay, "muon": muon} for (decay, muon), weights in groups.items()]


def _optimizers(groups: list[dict[str, Any]], train: TrainConfig) -> list[torch.optim.Optimizer]:
    def arguments(muon: bool) -> list[dict[str, Any]]:
        return [{"params": g["params"], "weight_decay": g["weight_decay"]} for g in groups if g["muon"] is muon]

    rest = arguments(False)
    if train.optimizer == "sgd":
        return [torch.optim.SGD(rest, lr=train.learning_rate, momentum=train.momentum, fused=True)]
    betas = (train.beta1, train.beta2)
    optimizers: list[torch.optim.Optimizer] = []
    if rest:
        optimizers.append(torch.optim.AdamW(rest, lr=train.learning_rate, betas=betas, eps=train.eps, fused=True))
    hidden = arguments(True)
    if hidden:
        # Updates as large as AdamW's usually are (Liu et al. 2025), so that one learning rate serves both.
        muon = torch.optim.Muon(hidden, lr=train.learning_rate, momentum=train.momentum, adjust_lr_fn="match_rms_adamw")
        optimizers.append(muon)
    return optimizers


def _flatten(weights: Iterable[Tensor]) -> nn.Parameter:
    """One buffer that holds these weights and one for their gradients; weights and gradients become views of them."""
    weights = list(weights)
    buffer = nn.Parameter(torch.cat([weight.detach().flatten() for weight in weights]))
    buffer.grad = torch.zeros_like(buffer)
    start = 0
    for weight in weights:
        end = start + weight.numel()
        weight.data = buffer.data[start:end].view(weight.shape)
        weight.grad = buffer.grad[start:end].view(weight.shape)
        start = end
    return buffer
