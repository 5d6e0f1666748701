"""Kinds of data that stand for no text: uniform random ids, and rows of numbers."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any

from gptlab.data.batches import Batch, TokenSource, VectorSource, rows_at_once
from gptlab.data.tokenizer import IdsTokenizer, Tokenizer
from gptlab.registry import register
from gptlab.streams import generator


@dataclass(frozen=True)
class Uniform:
    """The entropy of independent, uniform ids: ln V everywhere."""

    size: int

    def by_position(self, context: int) -> list[float]:
        """ln V for each of the T targets."""
        return [math.log(self.size)] * context

    def mean(self, context: int) -> float:
        """ln V."""
        return math.log(self.size)

    def unigram(self, context: int) -> float:
        """ln V: there is nothing to learn."""
        return math.log(self.size)


@dataclass(frozen=True)
class RandomTokens(TokenSource):
    """Ids that are uniform over the model's vocabulary. The fixed batch follows the seed."""

    vocab_size: int
    seed: int
    hash: str
    tokenizer: Tokenizer
    where: str = field(default="data.source=random_tokens", init=False)

    @property
    def entropy(self) -> Uniform:
        """ln V everywhere."""
        return Uniform(self.vocab_size)

    def unigram(self, context: int) -> float:
        """ln V."""
        return self.entropy.unigram(context)

    def tokens(self, count: int) -> list[int]:
        """The first `count` ids of the stream (seed, "data")."""
        import torch

        ids: list[int] = torch.randint(self.vocab_size, (count,), generator=generator(self.seed, "data")).tolist()
        return ids

    def batch(self, batch_size: int, context: int) -> Batch:
        """Windows of `tokens` that follow each other; targets are one further."""
        import torch

        ids = torch.tensor(self.tokens(batch_size * context + 1))
        return Batch(ids[:-1].view(batch_size, context), ids[1:].view(batch_size, context))

    def train_batch(self, step: int, batch_size: int, context: int, seed: int) -> Batch:
        """Rows from the stream (seed, "data", step)."""
        return self._rows(batch_size, context, seed, "data", step)

    def validation_batches(self, tokens: int, context: int) -> list[Batch]:
        """Rows that follow from the vocabulary alone."""
        import torch

        count = max(1, tokens // context)
        rows = self._rows(count, context, 0, "validation")
        weights = torch.full((count, context), 1 / (count * context), dtype=torch.float64)
        surprisal = torch.full((count, context), math.log(self.vocab_size), dtype=torch.float64)
        numbers = torch.arange(count)[:, None].expand_as(surprisal)
        parts = (rows.inputs, rows.targets, weights, surprisal, numbers)
        return [Batch(*part) for part in zip(*(t.split(rows_at_once(context)) for t in parts), strict=True)]

    def _rows(self, batch_size: int, context: int, seed: int, *stream: str | int) -> Batch:
        import torch

        ids = torch.randint(self.vocab_size, (batch_size, context + 1), generator=generator(seed, *stream))
        return Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())


@register("data", "random_tokens", tokenizers=("ids",))
def random_tokens(vocab_size: int, seed: int) -> RandomTokens:
    """Uniform random ids, for any vocabulary: nothing to learn, and the floor is ln V."""
    # The ids never end; this is what they follow from.
    return RandomTokens(vocab_size, seed, _hash(["random_tokens", vocab_size, seed]), IdsTokenizer(vocab_size))


@register("data", "vectors", tokenizers=())
def vectors(inputs: list[list[float]], targets: list[list[float]]) -> VectorSource:
    """Rows of numbers, for architecture=deep_mlp."""
    return VectorSource(_hash([inputs, targets]), inputs, targets)


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
