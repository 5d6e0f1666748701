"""The loss in chunks is the plain one: value, both gradients, tied heads, bf16, and never all logits at once."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from gptlab import kernels
from gptlab.training.kernels.loss import cross_entropy, head_loss, token_losses

TOKENS, DIM, VOCAB = 37, 8, 29


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 5 rows: seven whole ones and one of 2."""
    monkeypatch.setattr(kernels, "FEWEST_ROWS", 5)
    monkeypatch.setattr(kernels, "CHUNK_ELEMENTS", 1)


def example(dtype: torch.dtype = torch.float64, bias: bool = False) -> tuple[Tensor, nn.Linear, Tensor]:
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        head = nn.Linear(DIM, VOCAB, bias=bias, dtype=dtype)
    with torch.no_grad():
        head.weight.normal_(generator=generator)
    hidden = torch.randn(TOKENS, DIM, dtype=dtype, generator=generator).requires_grad_()
    return hidden, head, torch.randint(VOCAB, (TOKENS,), generator=generator)


def gradients(loss: Tensor, hidden: Tensor, head: nn.Linear) -> list[Tensor]:
    return list(torch.autograd.grad(loss, [hidden, *head.parameters()]))


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_chunks_give_the_plain_loss_and_its_gradients(bias: bool, scale: float) -> None:
    hidden, head, targets = example(bias=bias)
    plain = F.cross_entropy(head(hidden), targets)
    chunked = cross_entropy(hidden, head, targets)
    assert chunked.item() == pytest.approx(plain.item(), abs=1e-13)
    for found, expected in zip(
        gradients(chunked * scale, hidden, head), gradients(plain * scale, hidden, head), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("chunked", [True, False])
def test_the_z_loss_is_its_formula_beside_the_cross_entropy(chunked: bool) -> None:
    hidden, head, targets = example(bias=True)
    logits = head(hidden)
    log_z = torch.log(logits.exp().sum(-1))
    expected = F.cross_entropy(logits, targets) + 0.3 * (log_z**2).mean()
    found = head_loss(hidden, head, targets, 0.3, chunked=chunked)
    assert found.z_loss is not None and not found.z_loss.requires_grad and not found.cross_entropy.requires_grad
    tight = 1e-13 if chunked else 1e-5  # the plain way takes its softmax in fp32
    assert found.cross_entropy.item() == pytest.approx(F.cross_entropy(logits, targets).item(), abs=tight)
    assert found.z_loss.item() == pytest.approx(0.3 * (log_z**2).mean().item(), rel=tight)
    assert found.total.item() == pytest.approx(expected.item(), rel=tight)
    for one, other in zip(gradients(2 * found.total, hidden, head), gradients(2 * expected, hidden, head), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=tight)


@pytest.mark.usefixtures("few_rows")
def test_a_tied_table_gets_both_parts_of_its_gradient() -> None:
    _, head, targets = example()
    table = head.weight
    ids = targets.roll(1)
    found = torch.autograd.grad(cross_entropy(F.embedding(ids, table), head, targets), table)[0]
    expected = torch.autograd.grad(F.cross_entropy(F.embedding(ids, table) @ table.T, targets), table)[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)


@pytest.mark.usefixtures("few_rows")
def test_logits_in_the_thousands_stay_finite() -> None:
    hidden, head, targets = example(torch.float32)
    with torch.no_grad():
        head.weight *= 1e3
    loss = cross_entropy(hidden, head, targets)
    assert loss.item() == pytest.approx(F.cross_entropy(head(hidden), targets).item(), rel=1e-6)
    assert all(torch.isfinite(gradient).all() for gradient in gradients(loss, hidden, head))


@pytest.mark.usefixtures("few_rows")
def test_bf16_is_close_and_keeps_fp32_gradients() -> None:
    hidden, head, targets = example(torch.float32)
    exact = F.cross_entropy(head(hidden), targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy(hidden, head, targets)
    assert loss.dtype == torch.float32 and loss.item() == pytest.approx(exact.item(), rel=1e-2)
    for found, expected in zip(gradients(loss, hidden, head), gradients(exact, hidden, head), strict=True):
        assert found.dtype == torch.float32
        assert (found - expected).norm() < 0.02 * expected.norm()


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operator returned."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


@pytest.mark.usefixtures("few_rows")
def test_no_tensor_is_as_large_as_all_logits() -> None:
    hidden, head, targets = example()
    with Largest() as largest:
        cross_entropy(hidden, head, targets).backward()
    assert largest.elements < TOKENS * VOCAB // 2
    with Largest() as largest:
        F.cross_entropy(head(hidden), targets).backward()
    assert largest.elements >= TOKENS * VOCAB  # the measure itself can see them


def test_few_tokens_take_the_short_way_to_the_same_number() -> None:
    hidden, head, targets = example()
    assert cross_entropy(hidden, head, targets).item() == pytest.approx(
        F.cross_entropy(head(hidden), targets).item(),
        abs=1e-6,  # its softmax is in fp32
    )


@pytest.mark.usefixtures("few_rows")
def test_token_losses_are_those_of_each_token() -> None:
    hidden, head, targets = example(torch.float32)
    found = token_losses(hidden.view(1, TOKENS, DIM), head, targets.view(1, TOKENS))
    assert found.shape == (1, TOKENS) and not found.requires_grad
    torch.testing.assert_close(found[0], F.cross_entropy(head(hidden), targets, reduction="none"))


def test_a_head_of_zeros_loses_ln_of_the_vocabulary() -> None:
    hidden, head, targets = example(torch.float32)
    with torch.no_grad():
        head.weight.zero_()
    assert cross_entropy(hidden, head, targets).item() == pytest.approx(math.log(VOCAB), abs=1e-6)
