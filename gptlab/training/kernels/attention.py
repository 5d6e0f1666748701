"""Attention in bf16 on a CPU, for contexts of a few hundred tokens.

torch's own kernel is made for long contexts: it keeps no attention weights and computes them again, backward, in small
products. Here the weights of all heads are kept, and each product takes all heads at once: half the time at 256 tokens.
As torch's kernel does, a block of queries leaves out the keys that lie in the future of all of them.

Unlike there, logits are rounded to bf16, as they are wherever attention is written as two products: relative errors
are about 0.6% where torch has 0.3%, and grow with the logits. So that variants differ in nothing else, all take this
way: masks, windows, ALiBi, shared key heads. What is left to torch rounds alike (dropout of attention weights), or
learns its mask.
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

from gptlab.kernels import LONGEST

BLOCK = 128  # queries


def fast_attention(wanted: bool) -> AbstractContextManager[object]:
    """Within this context, F.scaled_dot_product_attention takes the way of this module wherever it can."""
    return _FastAttention() if wanted else nullcontext()


class _FastAttention(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            found = _attend(*args, **(kwargs or {}))
            if found is not None:
                return found
        return func(*args, **(kwargs or {}))


def _attend(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor | None:  # fmt: skip
    """As F.scaled_dot_product_attention, whose parameters these are; None for what is left to torch."""
    if torch.is_autocast_enabled("cpu"):
        query, key, value = (x.to(torch.get_autocast_dtype("cpu")) for x in (query, key, value))
    low = all(x.dtype == torch.bfloat16 and x.device.type == "cpu" and x.dim() == 4 for x in (query, key, value))
    alike = query.shape[-2:] == key.shape[-2:] == value.shape[-2:]
    if not (low and alike and query.shape[-2] <= LONGEST) or dropout_p or not _additive(attn_mask, is_causal):
        return None
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    heads: Tensor = _Attention.apply(query, key, value, attn_mask, is_causal, scale)  # type: ignore[no-untyped-call]
    return heads


def _additive(mask: Tensor | None, causal: bool) -> bool:
    """Whether a mask is there to be added, by itself, and learns nothing."""
    return mask is None or (mask.is_floating_point() and not mask.requires_grad and not causal)


def _blocks(length: int, causal: bool) -> Iterator[tuple[slice, slice]]:
    """(queries, the keys that any of them may look at)."""
    for start in range(0, length, BLOCK):
        end = min(start + BLOCK, length)
        yield slice(start, end), slice(0, end if causal else length)


class _Attention(torch.autograd.Function):
    """softmax(scale * q k^T + mask) v for q, k, v (B, heads, T, head_dim)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
        batch_and_heads, length = q.shape[:2], q.shape[2]
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        hidden = torch.full((BLOCK, BLOCK), -torch.inf, dtype=q.dtype).triu(1)
        y, kept = torch.empty_like(v), []
        with torch.autocast("cpu", enabled=False):
            for rows, seen in _blocks(length, causal):
                logits = torch.bmm(q[:, rows] * scale, k[:, seen].mT)
                if mask is not None:
                    logits.unflatten(0, batch_and_heads).add_(mask[..., rows, :])
                elif causal:
                    size = rows.stop - rows.start
                    logits[:, :, rows] += hidden[:size, :size]
                weights = logits.softmax(-1)  # sums in float32, whatever comes in and goes out
                y[:, rows] = torch.bmm(weights, v[:, seen])
                kept.append(weights)
        ctx.save_for_backward(q, k, v, *kept)
        ctx.causal, ctx.scale = causal, scale
        return y.unflatten(0, batch_and_heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *kept = ctx.saved_tensors
        batch_and_heads, grad = grad.shape[:2], grad.flatten(0, 1)
        grad_q = torch.empty_like(q)
        grad_k, grad_v = (torch.zeros_like(x, dtype=torch.float32) for x in (k, v))  # sums over blocks
        for (rows, seen), weights in zip(_blocks(q.shape[1], ctx.causal), kept, strict=True):
            above = grad[:, rows]
            grad_v[:, seen] += torch.bmm(weights.mT, above)
            grad_weights = torch.bmm(above, v[:, seen].mT)
            grad_logits = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
            grad_q[:, rows] = torch.bmm(grad_logits, k[:, seen]) * ctx.scale
            grad_k[:, seen] += torch.bmm(grad_logits.mT, q[:, rows] * ctx.scale)
        grads = (x.to(q.dtype).unflatten(0, batch_and_heads) for x in (grad_q, grad_k, grad_v))
        return (*grads, None, None, None)
