"""The variant under test: its model, inputs that fit it, and passes that leave no trace."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlab import streams
from gptlab.config import Config
from gptlab.errors import GptlabError
from gptlab.model import GPT, Model, build, skeleton
from gptlab.model.heads import PenalisesLogits
from gptlab.probes.hooks import untouched
from gptlab.probes.memory import physical_memory, weight_bytes

SHORT = 32  # tokens; enough for every check but the one at full length
Index = Any  # of a tensor
COPIES = 4  # of the weights, at most at one time: model, gradients, two others to compare with


@dataclass
class Case:
    """A variant, and what it is compared with (None: with nothing)."""

    config: Config
    baseline: Config | None = None

    @cached_property
    def model(self) -> Model:
        """The built model, in eval mode."""
        return build(self.config)

    @property
    def is_gpt(self) -> bool:
        """Whether the model takes token ids."""
        return self.config.model.architecture == "gpt"

    @property
    def short(self) -> int:
        """A length that costs little: `SHORT`, or the context length where that is shorter."""
        return min(SHORT, self.config.model.context_length)

    def example(self, batch: int, length: int, name: str = "") -> Tensor:
        """Random ids (batch, length); rows of normal numbers for deep_mlp. The same for the same arguments."""
        draw = streams.generator(0, "check", batch, length, name)
        if self.is_gpt:
            return torch.randint(self.config.model.vocab_size, (batch, length), generator=draw)
        return torch.randn(batch, (self.config.model.layer_sizes or [1])[0], generator=draw)

    def output(self, inputs: Tensor, train: bool = False, stream: str = "", model: nn.Module | None = None) -> Tensor:
        """One pass without gradients, with the random numbers of `stream`. The model is left as it was."""
        model = model or self.model
        with untouched(model, train), streams.forked(0, "check", stream), torch.no_grad():
            return model(inputs)

    @cached_property
    def exact_model(self) -> Model:
        """The same weights in float64."""
        return copy.deepcopy(self.model).double()

    def rounds(self, before: Tensor, after: Tensor, train: bool = False, part: Index = ...) -> bool:
        """Whether outputs for two inputs, which differ in float32, are in `part` the same in float64 up to rounding.

        An expert's product over other rows sums in another order; what one token tells another does not round away.
        """
        try:
            one, two = (self.output(inputs, train, model=self.exact_model)[part] for inputs in (before, after))
        except RuntimeError:  # a part that knows float32 alone
            return False
        return largest_gap(one, two) <= 1e-12 * max(1.0, one.abs().max().item())

    def loss(self, model: nn.Module, inputs: Tensor) -> Tensor:
        """What training differentiates: cross-entropy against random next tokens, z-loss and auxiliary losses; for
        deep_mlp the squared error against zero."""
        if not isinstance(model, GPT):
            output: Tensor = model(inputs).square().mean()
            return output
        batch, length = inputs.shape
        found = model.run(inputs)
        logits = model.out_head(found.features).flatten(0, 1)
        loss = F.cross_entropy(logits, self.example(batch, length, "targets").flatten())
        if isinstance(model.out_head, PenalisesLogits):
            loss = loss + model.out_head.z_loss * logits.logsumexp(-1).square().mean()
        return loss + sum(found.losses.values())

    def gradients(self, model: nn.Module) -> tuple[float, dict[str, Tensor | None]]:
        """(loss, gradient of each parameter that wants one) of one batch in eval mode."""
        with untouched(model), torch.enable_grad():
            loss = self.loss(model, self.example(2, self.short))
            loss.backward()
            found = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
        return loss.item(), found

    def with_seed(self, seed: int) -> Model:
        """The same variant, built from another seed."""
        return build(dataclasses.replace(self.config, seed=seed))


def refuse_too_large(config: Config) -> None:
    """GptlabError when the copies that the checks make cannot fit into memory."""
    try:
        weights = weight_bytes(skeleton(config.model))
    except GptlabError:
        raise
    except Exception:  # a component that cannot be built on the meta device: the line about counts will say so
        return
    needed, present = COPIES * weights, physical_memory()
    if present and needed > present:
        raise GptlabError(
            f"check: {COPIES} copies of the weights need {needed / 2**30:,.0f} GiB, this machine has "
            f"{present / 2**30:,.0f} GiB. Check the same ablation on a small model: model=tiny.",
            code="check-memory",
            copies=COPIES,
            suggestion="model=tiny",
        )


def same(a: Tensor, b: Tensor) -> bool:
    """Equal bit for bit, with NaN equal to NaN: other checks speak about those."""
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


def largest_gap(a: Tensor, b: Tensor) -> float:
    """Largest |a - b|."""
    return (a.double() - b.double()).abs().max().item() if a.numel() else 0.0
