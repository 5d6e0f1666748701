"""Languages of known entropy: what one is, and the source of batches that every one makes."""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gptlab.data.batches import Batch, TokenSource, rows_at_once
from gptlab.data.tokenizer import Tokenizer
from gptlab.errors import ConfigError
from gptlab.streams import generator

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

_FEW = 64  # rows: up to here, validation scores all strings, however few rows it is asked for


@dataclass(frozen=True)
class Strings:
    """Some rows of a language, of length T + 1: the first id is given, the other T are targets."""

    ids: npt.NDArray[np.int64]  # (B, T + 1)
    surprisal: npt.NDArray[np.float64]  # (B, T): -ln p(id | all before it in the row)
    probability: npt.NDArray[np.float64] | None = None  # (B,), of all strings there are; None for a sample


class Language(ABC):
    """A distribution over rows of ids whose every conditional is known. Satisfies `gptlab.data.batches.Entropy`."""

    size: int  # ids run from 0 to size - 1

    @abstractmethod
    def by_position(self, context: int) -> list[float]:
        """The entropy of each of the T targets of a row, given all of the row before it, in nats."""

    @abstractmethod
    def unigram(self, context: int) -> float:
        """The entropy of the frequencies of ids among the T targets, in nats."""

    @abstractmethod
    def draw(self, rows: int, context: int, randomness: torch.Generator) -> Strings:
        """A sample."""

    @abstractmethod
    def strings(self, context: int, limit: int) -> Strings | None:
        """All rows with their probabilities, or None when there are more than `limit`."""

    def check(self, context: int) -> None:  # noqa: B027  most have rows of any length
        """ConfigError when there are no rows of this length. Free of torch."""

    def mean(self, context: int) -> float:
        """The mean of `by_position`: the floor of the loss."""
        return math.fsum(self.by_position(context)) / context


class LanguageSource(TokenSource):
    """Batches of a language, as many as anyone wants. The fixed batch and validation are the same for every seed."""

    def __init__(
        self, name: str, language: Language, tokenizer: Tokenizer, vocab_size: int, declared: dict[str, Any]
    ) -> None:
        self.where, self.tokenizer, self.vocab_size = f"data.source={name}", tokenizer, vocab_size
        self.language = language
        self.hash = hashlib.sha256(json.dumps([name, declared], sort_keys=True).encode()).hexdigest()
        if language.size > vocab_size:
            raise ConfigError(
                f"{self.where}: token id {language.size - 1} is outside model.vocab_size={vocab_size}, which has ids "
                f"0 to {vocab_size - 1}. Choose other data or model.vocab_size={language.size} or more.",
                code="language-outside-vocabulary",
                where=self.where,
                vocab_size=vocab_size,
                size=language.size,
            )

    @property
    def entropy(self) -> Language:
        """The exact floor."""
        return self.language

    def unigram(self, context: int) -> float:
        """Exact, in nats."""
        return self.language.unigram(context)

    def check_batch(self, batch_size: int, context: int) -> None:
        """ConfigError when the language has no rows of this length."""
        self.language.check(context)

    def vet(self, context: int) -> None:
        """ConfigError when the language has no rows of this length."""
        self.language.check(context)

    def scores_all(self, context: int) -> bool:
        """A language of few strings of this length."""
        return self.language.strings(context, _FEW) is not None

    def batch(self, batch_size: int, context: int) -> Batch:
        """Rows from a stream of the language's own."""
        return _batch(self.language.draw(batch_size, context, generator(0, "batch", self.hash)))

    def train_batch(self, step: int, batch_size: int, context: int, seed: int) -> Batch:
        """Rows from the stream (seed, "data", step)."""
        return _batch(self.language.draw(batch_size, context, generator(seed, "data", step)))

    def validation_batches(self, tokens: int, context: int) -> list[Batch]:
        """All strings, weighted by probability, where they are no more than was asked for (or 64); else a sample."""
        import torch

        rows = max(1, tokens // context)
        found = self.language.strings(context, max(rows, _FEW))
        if found is None:
            found = self.language.draw(rows, context, generator(0, "validation", self.hash))
        if found.probability is None:
            weights = torch.full((rows,), 1 / rows, dtype=torch.float64)
        else:
            weights = torch.from_numpy(found.probability)
        whole, surprisal = _batch(found), torch.from_numpy(found.surprisal)
        weights = (weights / context)[:, None].expand_as(surprisal)
        numbers = torch.arange(len(weights))[:, None].expand_as(surprisal)  # strings are independent of each other
        parts = (t.split(rows_at_once(context)) for t in (whole.inputs, whole.targets, weights, surprisal, numbers))
        return [Batch(*part) for part in zip(*parts, strict=True)]


def _batch(strings: Strings) -> Batch:
    import torch

    ids = torch.from_numpy(strings.ids)
    return Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
