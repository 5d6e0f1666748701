"""The validation loss: on fixed rows, the same for every variant and seed, from the data alone."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gptlab.config import Config, ModelConfig
from gptlab.data.batches import Batch, TokenSource
from gptlab.model import GPT, build
from gptlab.model.per_layer import layer_config
from gptlab.training.kernels.loss import token_losses


@dataclass(frozen=True)
class Evaluation:
    """Mean over validation tokens, in nats. `excess`: above what the true distribution loses on the very same rows.

    `causal_loss`: for a model without a mask, its loss when it is used with one, as it has to be where there is no
    future to look at. `rise_error`: standard error, over documents, of `loss` minus the loss before training.
    """

    step: int
    loss: float
    excess: float | None = None
    causal_loss: float | None = None
    rise_error: float | None = None


@dataclass(frozen=True)
class Scores:
    """What one pass over some rows finds: means, and the same document by document (or row by row of a language)."""

    loss: float
    excess: float | None
    documents: list[int]
    shares: list[float]  # of each document among the targets; they add up to 1
    losses: list[float]  # the mean of each document

    def rows(self) -> list[dict[str, float | int]]:
        """For heldout.csv: losses by document, so that a difference can be told from the luck of the documents."""
        parts = zip(self.documents, self.shares, self.losses, strict=True)
        return [{"document": name, "share": share, "loss": loss} for name, share, loss in parts]

    def error_over(self, before: Sequence[float]) -> float | None:
        """Standard error, over documents, of the loss minus what it was `before`. None with fewer than two of them."""
        return standard_error([b - a for a, b in zip(before, self.losses, strict=True)], self.shares)


@dataclass(frozen=True)
class Rows:
    """Fixed rows, and what a record says of them."""

    batches: list[Batch]
    tokens: int  # targets that are scored
    share: float | None  # of all that is held out; None for a sample of a language, which never ends
    hash: str  # SHA-256 of the targets and their weights: losses on other rows are not comparable

    @classmethod
    def of(cls, source: TokenSource, tokens: int, context: int) -> Rows:
        """The rows of this data that score about so many targets."""
        batches = source.validation_batches(tokens, context)
        targets, weights, scored = hashlib.sha256(), hashlib.sha256(), 0  # apart: batches end where the context says
        for batch in batches:
            assert batch.weights is not None
            counted = batch.weights > 0
            scored += int(counted.sum())
            targets.update(batch.targets[counted].numpy().tobytes())
            weights.update(batch.weights[counted].numpy().tobytes())
        held_out = source.held_out()
        share = 1.0 if source.scores_all(context) else None if held_out is None else scored / held_out
        return cls(batches, scored, share, hashlib.sha256(targets.digest() + weights.digest()).hexdigest())

    def record(self) -> dict[str, float | int | str | None]:
        """For result.json."""
        return {"rows": self.hash, "tokens": self.tokens, "share": self.share}

    def bytes_per_target(self, source: TokenSource) -> float | None:
        """Mean number of bytes of text that a scored target stands for."""
        lengths = source.bytes_per_token()
        if lengths is None:
            return None
        table = torch.zeros(source.vocab_size, dtype=torch.float64)
        table[: len(lengths)] = torch.tensor(lengths, dtype=torch.float64)
        means = [
            table.to(b.targets.device)[b.targets].mul(b.weights).sum() for b in self.batches if b.weights is not None
        ]
        return float(torch.stack(means).sum())


@torch.no_grad()
def score(model: GPT, batches: Sequence[Batch]) -> Scores:
    """One pass. Dropout is off; the model is left in the mode that it was in."""
    training = model.training
    model.eval()
    loss, excess, known = 0.0, 0.0, True
    totals: dict[int, list[float]] = {}
    for batch in batches:
        assert batch.weights is not None
        weights = batch.weights
        found = token_losses(model.features(batch.inputs), model.out_head, batch.targets).double()
        loss += float((weights * found).sum())
        if batch.surprisal is None:
            known = False
        else:
            excess += float((weights * (found - batch.surprisal)).sum())
        numbers = torch.zeros_like(batch.targets) if batch.documents is None else batch.documents
        names, place = np.unique(numbers.cpu().numpy(), return_inverse=True)
        size = len(names)
        shares = np.bincount(place.ravel(), weights.cpu().numpy().ravel(), size)
        losses = np.bincount(place.ravel(), (weights * found).cpu().numpy().ravel(), size)
        for name, share, part in zip(names.tolist(), shares.tolist(), losses.tolist(), strict=True):
            sums = totals.setdefault(name, [0.0, 0.0])
            sums[0] += share
            sums[1] += part
    model.train(training)
    kept = {name: sums for name, sums in totals.items() if sums[0] > 0}
    means = [part / share for share, part in kept.values()]
    return Scores(loss, excess if known else None, list(kept), [share for share, _ in kept.values()], means)


def standard_error(values: Sequence[float], shares: Sequence[float]) -> float | None:
    """Of the mean of independent values that have these shares in it. None with fewer than two of them."""
    number = len(values)
    if number < 2 or not all(map(math.isfinite, values)):
        return None
    mean = math.fsum(share * value for share, value in zip(shares, values, strict=True))
    spread = math.fsum((share * (value - mean)) ** 2 for share, value in zip(shares, values, strict=True))
    return math.sqrt(spread * number / (number - 1))


def masked_twin(config: Config, model: GPT) -> GPT | None:
    """A model of the same weights that is causal everywhere; None where the config says that `model` is, and where a
    component has other parameters then.

    Built anew from the config, so that a mask comes from where the component makes it, whatever it is called there;
    parameters are shared with `model`, buffers (which a mask may be) are the twin's own.
    """
    if all(layer_config(config.model, layer).causal for layer in range(config.model.n_layers)):
        return None
    twin = build(dataclasses.replace(config, model=_causal(config.model))).to(model.out_head.weight.device)
    assert isinstance(twin, GPT)
    shared = dict(model.named_parameters(remove_duplicate=False))
    if {n: w.shape for n, w in twin.named_parameters(remove_duplicate=False)} != {
        n: w.shape for n, w in shared.items()
    }:
        return None
    for path, module in twin.named_modules():
        for name in [name for name, _ in module.named_parameters(recurse=False)]:
            setattr(module, name, shared[f"{path}.{name}" if path else name])
    return twin


def _causal(model: ModelConfig) -> ModelConfig:
    layers = {span: {k: v for k, v in given.items() if k != "causal"} for span, given in model.layers.items()}
    return dataclasses.replace(model, causal=True, layers=layers)
