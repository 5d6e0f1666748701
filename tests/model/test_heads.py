"""Output heads: logits by their formula, and the loss in chunks equal to the plain one, gradients included."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gptlab
from gptlab import kernels
from gptlab.model.heads import BentHead, linear
from gptlab.training.kernels.loss import head_loss, token_losses
from gptlab.training.outcome import expected_initial_loss
from tests.support.refusals import refused

DIM, VOCAB = 12, 31


def randn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def head(**options: Any) -> nn.Linear:
    with torch.random.fork_rng():
        found = linear(DIM, VOCAB, **options).double()
    with torch.no_grad():
        for number, parameter in enumerate(found.parameters()):
            parameter.copy_(randn(*parameter.shape, seed=number + 5))
    return found


def test_logits_by_their_formula() -> None:
    x = randn(2, 5, DIM)
    made = head(bias=True, scale=0.3, softcap=1.7)
    plain = x @ made.weight.T + made.bias
    torch.testing.assert_close(made(x), 1.7 * torch.tanh(0.3 * plain / 1.7), rtol=0, atol=1e-12)
    assert made(x).abs().max() < 1.7 < (0.3 * plain).abs().max()
    torch.testing.assert_close(head(scale=0.3)(x), 0.3 * head()(x), rtol=0, atol=1e-12)
    assert not isinstance(head(bias=True), BentHead)


@pytest.mark.parametrize("options", [{}, {"bias": True}, {"softcap": 2.0, "bias": True}, {"scale": 0.3}], ids=str)
@pytest.mark.parametrize("z_loss", [0.0, 0.2])
def test_the_loss_in_chunks_is_the_plain_one(
    options: dict[str, Any], z_loss: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "chunk_rows", lambda vocab_size: 4)
    made, targets = head(**options), torch.randint(VOCAB, (2, 7), generator=torch.Generator().manual_seed(3))
    found = []
    for chunked in (True, False):
        made.zero_grad()
        x = randn(2, 7, DIM).requires_grad_()
        loss = head_loss(x, made, targets, z_loss, chunked=chunked)
        (3 * loss.total).backward()
        numbers = [number.detach().double() for number in loss if number is not None]
        found.append([*numbers, x.grad, *(parameter.grad.clone() for parameter in made.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)  # losses are taken in float32
    logits = made(randn(2, 7, DIM)).float()
    expected = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(2, 7)
    torch.testing.assert_close(token_losses(randn(2, 7, DIM), made, targets), expected)


def test_the_first_loss_that_is_expected_knows_the_scale() -> None:
    losses = []
    for scale in (1.0, 0.5):
        config = gptlab.compose(["model=tiny", f"model.options.head.scale={scale}"])
        losses.append(expected_initial_loss(gptlab.build(config), config.model))
    floor = torch.tensor(256.0).log().item()
    assert losses[1] - floor == pytest.approx((losses[0] - floor) / 4)
    config = gptlab.compose(["model=tiny", "model.options.head.softcap=3"])
    assert expected_initial_loss(gptlab.build(config), config.model) is None


def test_a_tied_head_is_bent_over_the_shared_table() -> None:
    model = gptlab.build(gptlab.compose(["model=tiny", "model.tie_weights=true", "model.options.head.softcap=3"]))
    assert model.out_head.weight is model.tok_emb.weight
    ids = torch.arange(9)[None]
    logits = F.linear(model.features(ids), model.tok_emb.weight)
    torch.testing.assert_close(model(ids), 3 * torch.tanh(logits / 3))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"scale": 0.0}, "head-scale"),
        ({"softcap": -1.0}, "softcap-not-positive"),
        ({"z_loss": -1e-4}, "z-loss-negative"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], code: str) -> None:
    with refused(code):
        head(**options)
