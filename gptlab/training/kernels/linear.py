"""Matrix products of training on a CPU in fp32, through oneDNN.

torch hands fp32 products to MKL, which takes its AVX2 kernels on processors that are not Intel's. oneDNN takes AVX-512
wherever there is any: twice as fast on a Zen 5, slower than MKL on most shapes of an Intel processor, so a measurement
chooses. (In bf16 torch uses oneDNN by itself.) The results differ from MKL's in the last bits, as they do between
processors.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

_FEWEST = 2**20  # multiplications; a smaller product is over before oneDNN has started


def available() -> bool:
    """Whether this torch and this processor have what `nt` uses: an operator of torch's own compiler."""
    return (
        torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def nt(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """a @ b.T + bias: (m, k), (n, k) -> (m, n). Views that are transposed are read as they are. Without a gradient."""
    fast = a.dtype == torch.float32 and a.device.type == "cpu" and available()
    if not fast or a.shape[0] * a.shape[1] * b.shape[0] < _FEWEST:
        return F.linear(a, b, bias)
    product: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return product


def fast_linear(wanted: bool) -> AbstractContextManager[object]:
    """Within this context, linear layers compute through `nt`, forward and backward."""
    return _FastLinear() if wanted else nullcontext()


class _FastLinear(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.linear and not kwargs and args[0].dtype == torch.float32 and args[0].device.type == "cpu":
            return _Linear.apply(*args)  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


class _Linear(torch.autograd.Function):
    """nn.functional.linear, (..., k) -> (..., n)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return nt(x.flatten(0, -2), weight, bias).view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, *needs_bias = ctx.needs_input_grad
        rows = grad.flatten(0, -2)
        grad_x = nt(rows, weight.T).view(x.shape) if needs_x else None
        grad_weight = nt(rows.T, x.flatten(0, -2).T) if needs_weight else None
        grads = [grad_x, grad_weight, *(rows.sum(0) if needed else None for needed in needs_bias)]
        return tuple(grads)
