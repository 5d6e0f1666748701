"""Cross-entropy of a linear head, in chunks of tokens: the (tokens, vocab) logits never exist as a whole.

At 8 x 1024 tokens of a 50,257-word vocabulary the logits are 1.6 GB in fp32, and plain autograd holds them about three
times. Here one chunk of them lives at a time, forward and backward: as soon as a chunk's softmax is known, its part of
both gradients follows, so nothing is kept and nothing is computed twice (as in Liger's fused linear cross-entropy,
Hsu et al. 2024). Where all the logits fit into one chunk, torch's own operators are used: there is nothing to save.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from gptlab import kernels
from gptlab.training.kernels.linear import nt


class HeadLoss(NamedTuple):
    """Scalars, in nats: `total` is what is differentiated; the two that it is the sum of have no gradient."""

    total: Tensor
    cross_entropy: Tensor
    z_loss: Tensor | None = None


def cross_entropy(
    hidden: Tensor, head: nn.Linear, targets: Tensor, *, chunked: bool = True, onednn: bool = False
) -> Tensor:
    """Scalar: mean of -ln softmax(head(hidden))[target] in nats, over all tokens. For training.

    hidden (..., emb_dim), targets (...) int64. The products run in bf16 under autocast, the softmax always in fp32.
    `onednn`: through which the chunks' fp32 products go; of the plain way the context decides (`fast_linear`).
    """
    return head_loss(hidden, head, targets, chunked=chunked, onednn=onednn).total


def head_loss(
    hidden: Tensor, head: nn.Linear, targets: Tensor, z_loss: float = 0.0, *, chunked: bool = True, onednn: bool = False
) -> HeadLoss:
    """`cross_entropy`, and with `z_loss` > 0 that much of the mean of (ln sum exp(logits))^2 beside it."""
    rows, flat = hidden.flatten(0, -2), targets.flatten()
    chunk, count = kernels.chunk_rows(head.out_features), len(rows)
    if count <= chunk or not chunked:
        return _told(*_sums(head(rows).float(), flat, z_loss, "mean"), z_loss)
    if type(head).forward is not nn.Linear.forward:  # logits are more than one product: each chunk is computed twice
        found = [_of_chunk(head, rows[part], flat[part], z_loss) for part in _parts(count, chunk)]
        losses, squares = (torch.stack(list(each)).sum() / count for each in zip(*found, strict=True))
        return _told(losses, squares, z_loss)
    dtype = torch.get_autocast_dtype(rows.device.type) if torch.is_autocast_enabled(rows.device.type) else rows.dtype
    product = nt if onednn else F.linear
    total, loss, squares = _Chunked.apply(  # type: ignore[no-untyped-call]
        rows, head.weight, head.bias, flat, chunk, dtype, product, z_loss
    )
    return HeadLoss(total, loss, z_loss * squares if z_loss else None)


def _told(loss: Tensor, squares: Tensor, z_loss: float) -> HeadLoss:
    if not z_loss:
        return HeadLoss(loss, loss.detach())
    return HeadLoss(loss + z_loss * squares, loss.detach(), z_loss * squares.detach())


def _sums(logits: Tensor, targets: Tensor, z_loss: float, reduction: str) -> tuple[Tensor, Tensor]:
    """Cross-entropy of these rows, and where it is asked for the square of their ln sum exp; both reduced alike."""
    loss = F.cross_entropy(logits, targets, reduction=reduction)
    if not z_loss:
        return loss, loss.new_zeros(())
    squares = logits.logsumexp(-1).square()
    return loss, squares.mean() if reduction == "mean" else squares.sum()


def _of_chunk(head: nn.Module, rows: Tensor, targets: Tensor, z_loss: float) -> tuple[Tensor, Tensor]:
    """The sums of these rows; their logits are not kept, and computed again backward."""

    def loss(rows: Tensor) -> tuple[Tensor, Tensor]:
        return _sums(head(rows).float(), targets, z_loss, "sum")

    found: tuple[Tensor, Tensor] = checkpoint(loss, rows, use_reentrant=False)
    return found


@torch.no_grad()
def token_losses(hidden: Tensor, head: nn.Linear, targets: Tensor) -> Tensor:
    """-ln p(target) of each token in nats, in the shape of `targets`, float32. For evaluation."""
    rows, flat = hidden.flatten(0, -2), targets.flatten()
    losses = [
        F.cross_entropy(head(rows[part]).float(), flat[part], reduction="none")
        for part in _parts(len(rows), kernels.chunk_rows(head.out_features))
    ]
    return torch.cat(losses).view(targets.shape)


def _parts(count: int, size: int) -> Iterator[slice]:
    """As few parts of at most `size` as there can be, all nearly equal: a short last one would waste its products."""
    parts = -(-count // size)
    return (slice(count * i // parts, count * (i + 1) // parts) for i in range(parts))


class _Chunked(torch.autograd.Function):
    """Both gradients are made in the forward pass: for a mean over tokens they need nothing from further on."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, chunk: int, dtype: torch.dtype,
        product: Callable[..., Tensor], z_loss: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """(what is differentiated, cross-entropy, mean square of ln sum exp), the last two for the record.

        `dtype`: that of the matrix products; softmax and sums have at least float32. `product`(a, b) is a @ b.T.
        """
        exact, count = torch.promote_types(dtype, torch.float32), len(hidden)
        low_h, low_w, low_b = hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
        total, squares = (torch.zeros((), dtype=exact, device=hidden.device) for _ in range(2))
        grad_h = torch.empty_like(hidden)
        grad_w = torch.zeros_like(weight)
        grad_b = None if bias is None else torch.zeros_like(bias)
        with torch.autocast(hidden.device.type, enabled=False):
            for part in _parts(count, chunk):
                h, target = low_h[part], targets[part, None]
                logits = product(h, low_w, low_b)
                log_p = F.log_softmax(logits, dim=-1, dtype=exact)
                of_target = log_p.gather(1, target)
                total -= of_target.sum()
                # d(sum of losses)/d(logits) is softmax minus one-hot; the 1/count goes into the smaller factors below.
                grad = log_p.exp_()
                if z_loss:
                    log_z = logits.gather(1, target).to(exact) - of_target
                    squares += log_z.square().sum()
                    grad.mul_(1 + 2 * z_loss * log_z)  # d(log_z)/d(logits) is the softmax
                del logits
                grad.scatter_add_(1, target, torch.full_like(target, -1, dtype=exact))
                if grad_b is not None:
                    grad_b.add_(grad.sum(0), alpha=1 / count)
                low = grad.to(dtype)
                grad_h[part] = product(low, low_w.T) / count
                grad_w.add_(product(low.T, h.T), alpha=1 / count)
        ctx.save_for_backward(grad_h, grad_w, grad_b)
        loss, squares = total / count, squares / count
        ctx.mark_non_differentiable(loss, squares)
        return loss + z_loss * squares if z_loss else loss.clone(), loss, squares

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        # Nearly always 1, and one pass over the head's gradient would cost as much as a chunk's softmax.
        same = upstream.device.type == "cpu" and upstream.item() == 1
        grads = (grad if grad is None or same else grad * upstream for grad in ctx.saved_tensors)
        return (*grads, None, None, None, None, None)
