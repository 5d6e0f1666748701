"""`gptlab check` on state, decoding, training and auxiliary losses: each line seen to fail on a planted fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlab.check import state, tokens, training
from gptlab.check.case import Case
from gptlab.check.report import Verdict
from gptlab.config import Config, ModelConfig
from gptlab.model.attention import Attended, MultiHeadAttention
from gptlab.model.contract import Handed, Loss
from gptlab.model.decoding import KeyValues
from gptlab.model.feed_forward import MLP
from gptlab.registry import register

SMALL = ModelConfig(vocab_size=97, context_length=16, emb_dim=16, n_heads=2, n_layers=2, drop_rate=0.0)

pytestmark = pytest.mark.usefixtures("scratch_registry")


def case(slot: str, make: type[nn.Module], **changes: Any) -> Case:
    register(slot, f"test_{make.__name__}")(make)
    return Case(Config(model=replace(SMALL, **{slot: f"test_{make.__name__}"}, **changes)))


def fails(verdict: Verdict, *words: str) -> None:
    assert verdict.status == "fail", verdict
    assert all(word in verdict.reason for word in words), verdict.reason


class Attention(MultiHeadAttention):
    """Without options, so that subclasses say what they change and no more."""

    def __init__(self, emb_dim: int, n_heads: int) -> None:
        super().__init__(emb_dim, n_heads)


_kept: dict[str, Tensor] = {}


class Smuggled(Attention):
    """A value residual by way of a global: layer 0 leaves its input there, the others find it."""

    def __init__(self, emb_dim: int, n_heads: int, layer: int) -> None:
        super().__init__(emb_dim, n_heads)
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        if self.layer == 0:
            _kept["x"] = x
        y = super().forward(x)
        assert isinstance(y, Tensor)
        return y + _kept["x"]


class Declared(Attention):
    """The same, declared."""

    def forward(self, x: Tensor, first: Tensor | None = None) -> Given:  # type: ignore[override]
        y = super().forward(x)
        assert isinstance(y, Tensor)
        return Given(y if first is None else y + first, x if first is None else first)


class Given(NamedTuple):
    y: Tensor
    first: Handed


class Remembering(nn.Module):
    """Adds the mean of the batch before."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        last, self.last = self.last, x.detach().mean((0, 1))
        return x.relu() if last is None else x.relu() + last


class FromTheRowBefore(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.relu() + 0.1 * F.pad(x[:-1], (0, 0, 0, 0, 1, 0))


def test_state_that_no_signature_declares() -> None:
    smuggled = case("attention", Smuggled)
    smuggled.output(smuggled.example(2, 8))
    fails(state.no_state(smuggled), "between two layers")
    assert state.no_state(case("attention", Declared)).status == "pass"


def test_state_from_call_to_call_and_from_row_to_row() -> None:
    fails(state.no_state(case("activation", Remembering)), "after another batch")
    fails(tokens.neighbours(case("activation", FromTheRowBefore)), "in eval mode")


class Forgetful(Attention):
    """Sees only the new tokens while decoding."""

    def forward(self, x: Tensor, positions: Any = None, state: Any = None) -> Tensor | Attended:
        y = super().forward(x)
        assert isinstance(y, Tensor)
        return y if state is None else Attended(y, KeyValues(16, state.length + x.shape[1]))


class FixedRows(KeyValues):
    """Reordering is forgotten."""

    def reordered(self, rows: Tensor) -> KeyValues:
        return self


class DeafToRows(Attention):
    def empty_state(self, batch_size: int, capacity: int) -> KeyValues:
        return FixedRows(capacity)


class KeepsAll(KeyValues):
    """Going back forgets nothing."""

    def cropped(self, length: int) -> KeyValues:
        return self


class CannotGoBack(Attention):
    def empty_state(self, batch_size: int, capacity: int) -> KeyValues:
        return KeepsAll(2 * capacity)


def test_decoding_is_held_against_one_pass() -> None:
    fails(state.decoding(case("attention", Forgetful)), "token by token")
    for sound in ({}, {"position": "rope"}, {"position": "alibi", "layout": "parallel"}, {"n_layers": 0}):
        assert state.decoding(Case(Config(model=replace(SMALL, **sound)))).status == "pass", sound  # type: ignore[arg-type]
    without = state.decoding(Case(Config(model=replace(SMALL, causal=False))))
    assert without.status == "not applicable" and "causal" in without.reason


def test_rows_and_going_back_are_held_against_one_pass() -> None:
    fails(state.decoding(case("attention", DeafToRows)), "with rows reordered")


def test_a_state_that_does_not_go_back() -> None:
    fails(state.decoding(case("attention", CannotGoBack)), "after going back")


class PutBack(nn.Module):
    """A scale that every pass sets back."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.scale.fill_(1.0)
        return F.layer_norm(x, x.shape[-1:]) * self.scale


class TooLarge(PutBack):
    """A number so large that no step changes it."""

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:]) * (self.scale - 1e9 + 1)

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.scale = nn.Parameter(torch.full((dim,), 1e9))


@pytest.mark.parametrize("make", [PutBack, TooLarge])
def test_a_parameter_that_never_moves(make: type[nn.Module]) -> None:
    fails(training.moves(case("norm", make)), "scale")
    assert training.moves(Case(Config(model=SMALL))).status == "pass"
    assert training.moves(Case(Config(model=replace(SMALL, shortcut="rezero")))).status == "pass"


class Balanced(NamedTuple):
    y: Tensor
    balance: Loss


class Stacked(nn.Module):
    """Top-1 of four experts whose weights are one tensor; the router may know fewer of them."""

    known, weight = 4, 0.01

    def __init__(self, emb_dim: int) -> None:
        super().__init__()
        self.router = nn.Linear(emb_dim, 4)
        self.experts = nn.Parameter(0.1 * torch.randn(4, emb_dim, emb_dim))

    def reset_parameters(self) -> None:
        self.experts.normal_(std=0.1)

    def forward(self, x: Tensor) -> Balanced:
        shares = self.router(x).softmax(-1)
        share, chosen = shares[..., : self.known].max(-1)
        y = (self.experts[chosen] @ x.unsqueeze(-1)).squeeze(-1) * share.unsqueeze(-1)
        busy = F.one_hot(chosen, 4).float().mean((0, 1))
        return Balanced(y, self.loss(4 * (busy * shares.mean((0, 1))).sum()))

    def loss(self, balance: Tensor) -> Tensor:
        return self.weight * balance


class NobodysExpert(Stacked):
    known = 3


class NoWeight(Stacked):
    weight = 0.0


class Detached(Stacked):
    def loss(self, balance: Tensor) -> Tensor:
        return self.weight * balance.detach()


class OnePerRow(Stacked):
    def loss(self, balance: Tensor) -> Tensor:
        return balance.repeat(3)


def test_an_expert_that_nobody_reaches() -> None:
    assert training.experts(case("feed_forward", Stacked)).status == "pass"
    assert training.experts(Case(Config(model=SMALL))).status == "not applicable"


@pytest.mark.parametrize(
    ("make", "words"),
    [(NobodysExpert, ("experts", "reaches 3 of 4")), (NoWeight, ("balance is zero",)),
     (Detached, ("balance has no gradient",)), (OnePerRow, ("shape (3,)",))],
)  # fmt: skip
def test_experts_and_losses_that_teach_nothing(make: type[nn.Module], words: tuple[str, ...]) -> None:
    look = training.experts if make is NobodysExpert else training.auxiliary_losses
    fails(look(case("feed_forward", make)), *words)


def test_sound_auxiliary_losses_pass() -> None:
    assert training.auxiliary_losses(case("feed_forward", Stacked)).status == "pass"
    assert training.auxiliary_losses(Case(Config(model=SMALL))).status == "not applicable"


def test_a_tensor_that_nobody_hands_on_is_refused() -> None:
    from gptlab.errors import ConfigError

    class Asking(MLP):
        def __init__(self, emb_dim: int, activation: nn.Module) -> None:
            super().__init__(emb_dim, activation)

        def forward(self, x: Tensor, treasure: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x) + treasure

    with pytest.raises(ConfigError) as told:
        case("feed_forward", Asking).model  # noqa: B018
    assert told.value.code == "not-handed-on" and told.value.facts["value"] == "treasure"
