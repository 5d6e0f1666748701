"""Attention in bf16 on a CPU, for contexts of a few hundred tokens.

torch's own kernel is made for long contexts: it keeps no attention weights and computes them again, backward, in small
products. Here the weights of all heads are kept, and each product takes all heads at once: half the time at 256 tokens.
As torch's kernel does, a block of queries leaves out the keys that lie in the future of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

LONGEST = 512  # tokens; beyond that, the weights that are kept outgrow all other activations
BLOCK = 128  # queries


def fast_attention(wanted: bool) -> AbstractContextManager[object]:
    """Within this context, F.scaled_dot_product_attention takes the way of this module wherever it can."""
    return _FastAttention() if wanted else nullcontext()


class _FastAttention(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            return _attend(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _attend(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """As F.scaled_dot_product_attention, whose parameters these are."""
    plain = attn_mask is None and not dropout_p and not enable_gqa and q.shape == k.shape == v.shape
    low = all(x.dtype == torch.bfloat16 and x.device.type == "cpu" for x in (q, k, v))
    if not (plain and low and q.dim() == 4 and q.shape[-2] <= LONGEST):
        with torch._C.DisableTorchFunction():
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    heads: Tensor = _Attention.apply(*(x.flatten(0, 1) for x in (q, k, v)), is_causal, scale)  # type: ignore[no-untyped-call]
    return heads.view(q.shape)


def _blocks(length: int, causal: bool) -> Iterator[tuple[slice, slice]]:
    """(queries, the keys that any of them may look at)."""
    for start in range(0, length, BLOCK):
        end = min(start + BLOCK, length)
        yield slice(start, end), slice(0, end if causal else length)


class _Attention(torch.autograd.Function):
    """softmax(scale * q k^T) v for q, k, v (batch * heads, T, head_dim)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
        length = q.shape[1]
        hidden = torch.full((BLOCK, BLOCK), -torch.inf, dtype=q.dtype).triu(1)
        y, kept = torch.empty_like(v), []
        for rows, seen in _blocks(length, causal):
            logits = torch.bmm(q[:, rows] * scale, k[:, seen].mT)
            if causal:
                size = rows.stop - rows.start
                logits[:, :, rows] += hidden[:size, :size]
            weights = logits.softmax(-1)  # sums in float32, whatever comes in and goes out
            y[:, rows] = torch.bmm(weights, v[:, seen])
            kept.append(weights)
        ctx.save_for_backward(q, k, v, *kept)
        ctx.causal, ctx.scale = causal, scale
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *kept = ctx.saved_tensors
        grad_q = torch.empty_like(q)
        grad_k, grad_v = (torch.zeros_like(x, dtype=torch.float32) for x in (k, v))  # sums over blocks
        for (rows, seen), weights in zip(_blocks(q.shape[1], ctx.causal), kept, strict=True):
            above = grad[:, rows]
            grad_v[:, seen] += torch.bmm(weights.mT, above)
            grad_weights = torch.bmm(above, v[:, seen].mT)
            grad_logits = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
            grad_q[:, rows] = torch.bmm(grad_logits, k[:, seen]) * ctx.scale
            grad_k[:, seen] += torch.bmm(grad_logits.mT, q[:, rows] * ctx.scale)
        return grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype), None, None
