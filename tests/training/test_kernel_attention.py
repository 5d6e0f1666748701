"""The bf16 attention of training against torch's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gptlab.kernels import LONGEST, PLAIN
from gptlab.training.kernels.attention import BLOCK, fast_attention


def made(*shape: int) -> list[Tensor]:
    """q, k, v, and a gradient for the output, of values that bf16 has."""
    randomness = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=randomness).bfloat16() for _ in range(4)]


def attended(tensors: list[Tensor], dtype: torch.dtype, *, fast: bool, causal: bool, **options: float) -> list[Tensor]:
    """The output and the three gradients, in float64."""
    q, k, v, above = (x.to(dtype).detach().requires_grad_() for x in tensors)
    with fast_attention(fast):
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, **options)
    y.backward(above)
    found = [y, *(x.grad for x in (q, k, v))]
    return [x.detach().double() for x in found if x is not None]


def close(found: list[Tensor], exact: list[Tensor], share: float) -> bool:
    return all((got - wanted).norm() <= share * wanted.norm() + 1e-6 for got, wanted in zip(found, exact, strict=True))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 7, BLOCK, BLOCK + 1, 300])
def test_it_is_attention_within_what_bf16_can_say(length: int, causal: bool) -> None:
    tensors = made(2, 3, length, 16)
    # A number of bf16 is off by up to 0.4%, there are three products one behind the other, and logits are rounded too.
    for scale, share in ((0.4, 0.012), (1.5, 0.03)):
        exact = attended(tensors, torch.float64, fast=False, causal=causal, scale=scale)
        assert close(attended(tensors, torch.bfloat16, fast=True, causal=causal, scale=scale), exact, share)


def test_masks_and_shared_heads_go_the_same_way() -> None:
    q, k, v, above = made(2, 4, 200, 16)
    mask = torch.randn(4, 200, 200, generator=torch.Generator().manual_seed(1)).bfloat16().triu(-20)
    mask = mask.masked_fill(torch.ones(200, 200).triu(1).bool(), -torch.inf)

    def run(dtype: torch.dtype, fast: bool) -> list[Tensor]:
        leaves = [x.to(dtype).detach().requires_grad_() for x in (q, k[:, :2], v[:, :2])]
        with fast_attention(fast):
            y = F.scaled_dot_product_attention(
                query=leaves[0], key=leaves[1], value=leaves[2], attn_mask=mask.to(dtype), enable_gqa=True
            )
        y.backward(above.to(dtype))
        return [x.detach().double() for x in (y, *(leaf.grad for leaf in leaves)) if x is not None]

    found = run(torch.bfloat16, True)
    assert close(found, run(torch.float64, False), 0.02)
    assert not torch.equal(found[0], run(torch.bfloat16, False)[0]), "or torch's kernel was taken"


def test_autocast_is_followed() -> None:
    """A norm of queries and keys hands on float32, which torch's operator takes to bf16."""
    q, k, v, _ = made(1, 2, 64, 8)
    with fast_attention(True), torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = F.scaled_dot_product_attention(q.float(), k.float(), v, is_causal=True)
        low = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.equal(mixed, low) and mixed.dtype == torch.bfloat16


def test_no_query_sees_the_future() -> None:
    q, k, v, _ = made(1, 2, 200, 8)
    with fast_attention(True):
        before = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        k[:, :, 150:], v[:, :, 150:] = 5.0, 7.0
        after = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.equal(before[:, :, :150], after[:, :, :150])
    assert not torch.equal(before[:, :, 150:], after[:, :, 150:])


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.zeros(9, 9).bfloat16().requires_grad_()),
            id="learned mask",
        ),
        pytest.param(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.ones(9, 9).bool().tril()), id="bool mask"
        ),
        pytest.param(lambda q, k, v: F.scaled_dot_product_attention(q, k[:, :, :5], v[:, :, :5]), id="other keys"),
        pytest.param(lambda q, k, v: F.scaled_dot_product_attention(q.float(), k.float(), v.float()), id="float32"),
        pytest.param(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5), id="dropout"),
        pytest.param(
            lambda q, k, v: F.scaled_dot_product_attention(*(x.repeat(1, 1, LONGEST, 1) for x in (q, k, v))), id="long"
        ),
    ],
)
def test_all_else_is_left_to_torch(call: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    q, k, v, _ = made(1, 2, 9, 8)
    outputs = []
    for fast in (False, True):
        with torch.random.fork_rng(), fast_attention(fast):
            torch.manual_seed(0)
            outputs.append(call(q, k, v))
    assert torch.equal(*outputs)


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this processor has no bf16")
def test_training_takes_it() -> None:
    """Within `precision`, in bf16 and only there, where the run takes it."""
    from gptlab import compose
    from gptlab.training.conditions import precision

    q, k, v, _ = made(1, 2, 64, 8)
    plain = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    with fast_attention(True):
        fast = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert not torch.equal(plain, fast), "or the test sees nothing"
    kept = {**PLAIN, "attention": "kept"}
    for name, kernels, expected in (("bf16", kept, fast), ("bf16", PLAIN, plain), ("fp32", kept, plain)):
        config = compose(["model=tiny", "train=small", f"train.precision={name}"])
        with precision(config.train, torch.device("cpu"), kernels):
            assert torch.equal(F.scaled_dot_product_attention(q, k, v, is_causal=True), expected)
