"""The oracle for book compatibility: chapter 4's GPT written plainly, modules made in the book's order."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Norm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))
        self.shift = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return self.scale * centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() + self.shift


class Gelu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, context: int, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.W_query = nn.Linear(dim, dim, bias=bias)
        self.W_key = nn.Linear(dim, dim, bias=bias)
        self.W_value = nn.Linear(dim, dim, bias=bias)
        self.out_proj = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.ones(context, context).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        B, T, dim = x.shape
        q, k, v = (f(x).view(B, T, self.heads, -1).transpose(1, 2) for f in (self.W_query, self.W_key, self.W_value))
        scores = (q @ k.transpose(2, 3) / math.sqrt(dim // self.heads)).masked_fill(
            self.mask[:T, :T].bool(), -torch.inf
        )
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, dim))


class FeedForward(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(dim, 4 * dim), Gelu(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class BookBlock(nn.Module):
    def __init__(self, dim: int, heads: int, context: int, bias: bool) -> None:
        super().__init__()
        self.att = Attention(dim, heads, context, bias)
        self.ff = FeedForward(dim)
        self.norm1 = Norm(dim)
        self.norm2 = Norm(dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.att(self.norm1(x))
        return x + self.ff(self.norm2(x))


class BookGPT(nn.Module):
    """Dropout is left out: it draws nothing at construction, and the comparisons are in eval mode."""

    def __init__(self, vocab: int, context: int, dim: int, heads: int, layers: int, bias: bool = False) -> None:
        super().__init__()
        self.tok_emb = nn.Embedding(vocab, dim)
        self.pos_emb = nn.Embedding(context, dim)
        self.trf_blocks = nn.Sequential(*(BookBlock(dim, heads, context, bias) for _ in range(layers)))
        self.final_norm = Norm(dim)
        self.out_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok_emb(ids) + self.pos_emb(torch.arange(ids.shape[1]))
        return self.out_head(self.final_norm(self.trf_blocks(x)))


def book_gpt(seed: int, *sizes: int, bias: bool = False) -> BookGPT:
    """`BookGPT` as a script makes it after torch.manual_seed(seed); the caller's random state is kept."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return BookGPT(*sizes, bias=bias).eval()
