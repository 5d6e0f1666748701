"""One training step of each contestant, on the same tokens: gptlab, transformers, and a plain script of our own.

All are GPT-2 as released (tied, biases everywhere) without dropout, with torch's fused AdamW; bf16 is autocast.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlab import compose
from gptlab.config import Config
from gptlab.kernels import resolved
from gptlab.probes import Subject
from gptlab.training.conditions import precision as precisely
from gptlab.training.kernels.loss import cross_entropy
from gptlab.training.kernels.measure import choose, measure
from gptlab.training.optimizer import Updates

Shape = tuple[int, int, int, int, int, int]  # batch, context, vocabulary, width, layers, heads
Step = Callable[[], float]
SHAPES: dict[str, Shape] = {
    "124M": (2, 256, 50257, 768, 12, 12),
    "characters": (16, 256, 65, 384, 6, 6),
    "small": (64, 64, 65, 128, 4, 4),
    "long": (8, 1024, 50257, 256, 2, 4),
}


def config(shape: Shape, precision: str = "fp32") -> Config:
    batch, context, vocabulary, width, layers, heads = shape
    return compose(
        [
            "model=gpt2_124m", "ablation=as_released", "data=random_tokens", "probes=counting", "model.drop_rate=0.0",
            f"model.vocab_size={vocabulary}", f"model.context_length={context}", f"model.emb_dim={width}",
            f"model.n_layers={layers}", f"model.n_heads={heads}", f"train.batch_size={batch}", "train.budget=10",
            f"train.precision={precision}",
        ]
    )  # fmt: skip


def tokens(shape: Shape) -> Tensor:
    return torch.randint(shape[2], (shape[0], shape[1] + 1), generator=torch.Generator().manual_seed(0))


def flops(shape: Shape) -> int:
    """FLOPs of the matrix products of one step, forward and backward; attention counts what its mask hides, too."""
    batch, context, vocabulary, width, layers, _ = shape
    weights = 12 * layers * width**2 + vocabulary * width
    return batch * context * (6 * weights + 12 * layers * width * context)


def ours(settled: Config, ids: Tensor) -> Step:
    """A step as gptlab.training.loop makes it, with the kernels that a study would choose here."""
    kernels = resolved(settled, choose(measure(settled)))
    model = Subject(settled).model.train()
    updates = Updates(model, settled.train, flat=kernels["optimizer"] == "flat")
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def step() -> float:
        with precisely(settled.train, torch.device("cpu"), kernels):
            loss = cross_entropy(
                model.features(inputs), model.out_head, targets,
                chunked=kernels["loss"] == "chunked", onednn=kernels["linear"] == "onednn",
            )  # fmt: skip
        loss.backward()
        updates.clip()
        updates.step()
        return loss.item()

    return step


def transformers(shape: Shape, precision: str, ids: Tensor) -> Step:
    from transformers import GPT2Config, GPT2LMHeadModel

    _, context, vocabulary, width, layers, heads = shape
    with torch.random.fork_rng():
        model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocabulary, n_positions=context, n_embd=width, n_layer=layers, n_head=heads,
                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None,
            )
        ).train()  # fmt: skip
    inputs = ids[:, :-1].contiguous()
    return _stepper(model, precision, lambda: model(input_ids=inputs, labels=inputs).loss)


def plain(shape: Shape, precision: str, ids: Tensor, *, compiled: bool = False) -> Step:
    with torch.random.fork_rng():
        model = PlainGPT(shape)
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    run = torch.compile(model) if compiled else model
    return _stepper(model, precision, lambda: run(inputs, targets))


def _stepper(model: nn.Module, precision: str, loss_of: Callable[[], Tensor]) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> float:
        cast: AbstractContextManager[object] = nullcontext()
        if precision == "bf16":
            cast = torch.autocast("cpu", dtype=torch.bfloat16)
        with cast:
            loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def can_compile() -> bool:
    return any(map(shutil.which, ("g++", "clang++", "c++")))


class PlainGPT(nn.Module):
    """A GPT-2 as a script has it: one product for queries, keys and values, SDPA, a tied head; returns the loss."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        _, context, vocabulary, width, layers, heads = shape
        self.heads = heads
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width),
                    "norm2": nn.LayerNorm(width),
                    "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width),
                }
            )
            for _ in range(layers)
        )  # fmt: skip
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            parts = block["qkv"](block["norm"](x)).chunk(3, dim=-1)
            q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
            x = x + block["out"](mixed)
            x = x + block["down"](F.gelu(block["up"](block["norm2"](x)), approximate="tanh"))
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
