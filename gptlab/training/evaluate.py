"""The validation loss: on fixed rows, the same for every variant and seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from gptlab.data.batches import Batch
from gptlab.model import GPT
from gptlab.training.kernels.loss import token_losses


@dataclass(frozen=True)
class Evaluation:
    """Mean over validation tokens, in nats. `excess`: above what the true distribution loses on the very same rows.

    `causal_loss`: for a model without a mask, its loss when it is used with one, as it has to be where there is no
    future to look at.
    """

    step: int
    loss: float
    excess: float | None = None
    causal_loss: float | None = None


def evaluate(model: GPT, batches: Sequence[Batch], step: int) -> Evaluation:
    """Dropout is off; the model is left in the mode that it was in."""
    losses, excess = _losses(model, batches)
    attentions = [m for m in model.modules() if getattr(m, "causal", True) is False]
    if not attentions:
        return Evaluation(step, losses, excess)
    with _masked(attentions):
        return Evaluation(step, losses, excess, causal_loss=_losses(model, batches)[0])


@torch.no_grad()
def _losses(model: GPT, batches: Sequence[Batch]) -> tuple[float, float | None]:
    """(loss, excess), weighted by row."""
    training = model.training
    model.eval()
    loss, excess, known = 0.0, 0.0, True
    for batch in batches:
        assert batch.weights is not None
        found = token_losses(model.features(batch.inputs), model.out_head, batch.targets).double()
        loss += float((batch.weights * found.mean(dim=1)).sum())
        if batch.surprisal is None:
            known = False
        else:
            excess += float((batch.weights * (found - batch.surprisal).mean(dim=1)).sum())
    model.train(training)
    return loss, excess if known else None


@contextmanager
def _masked(attentions: Sequence[nn.Module]) -> Iterator[None]:
    """The same weights, used causally."""
    for attention in attentions:
        attention.causal = True  # type: ignore[assignment]
    try:
        yield
    finally:
        for attention in attentions:
            attention.causal = False  # type: ignore[assignment]
