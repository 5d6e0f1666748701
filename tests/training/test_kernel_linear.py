"""Products through oneDNN are the products, forward and backward."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gptlab.training.kernels import linear
from gptlab.training.kernels.linear import fast_linear, nt

needs_onednn = pytest.mark.skipif(not linear.available(), reason="this processor or torch lacks what it uses")


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_FEWEST", 0)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@needs_onednn
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_nt(transposed: tuple[bool, bool]) -> None:
    a = random(7, 5).T if transposed[0] else random(5, 7)
    b = random(7, 9).T if transposed[1] else random(9, 7)
    torch.testing.assert_close(nt(a, b), a @ b.T)
    torch.testing.assert_close(nt(a, b, random(9)), a @ b.T + random(9))


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_and_its_gradients(bias: bool) -> None:
    with torch.random.fork_rng():
        layer = nn.Linear(7, 9, bias=bias)
    x = random(2, 3, 7).requires_grad_()
    results = []
    for wanted in (True, False):
        with fast_linear(wanted):
            y = layer(x)
        grads = torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])
        results.append([y, *grads])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)


@needs_onednn
def test_weights_that_are_not_trained_get_no_gradient() -> None:
    weight, x = random(3, 4), random(2, 4).requires_grad_()
    with fast_linear(True):
        y = F.linear(x, weight)
    y.sum().backward()
    assert weight.grad is None
    torch.testing.assert_close(x.grad, weight.sum(0).expand(2, 4))


def test_other_types_and_other_functions_pass() -> None:
    with fast_linear(True):
        assert F.linear(random(2, 3).double(), random(4, 3).double()).dtype == torch.float64
        assert F.linear(random(2, 3), weight=random(4, 3)).shape == (2, 4)
        assert F.relu(random(2)).shape == (2,)


def test_a_torch_without_it_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "available", lambda: False)
    a, b = random(2, 3), random(4, 3)
    assert torch.equal(nt(a, b), F.linear(a, b))
    with fast_linear(True):
        assert torch.equal(F.linear(a, b), a @ b.T)
