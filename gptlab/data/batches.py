"""From a data config to batches of tensors.

    source = load(config.data, vocab_size=config.model.vocab_size, seed=config.seed)
    source.batch(batch_size=2, context=64)                      # one fixed batch: what the probes look at
    source.vet(context=64)                                      # ConfigError when there is too little to train on
    source.train_batch(step=0, batch_size=8, context=64, seed=1)  # a pure function of its arguments
    source.validation_batches(tokens=8192, context=64)  # fixed: the same for every variant and seed

A training batch follows from (seed, step) alone, so a run resumes without any state of an iterator, and all variants of
a seed see the same data. Validation rows follow from the data and the number of tokens to score, never from a key of
the training; text scores the very same targets whatever the context is. Targets carry weights, and for a language of
known entropy also what the true distribution would lose on them:

    validation_loss = sum over batches of (batch.weights * losses).sum()      # losses: (B, T), nats
    excess = sum over batches of (batch.weights * (losses - batch.surprisal)).sum()

The true distribution has an excess of exactly 0 on any sample, so `excess` is nearly free of the noise of sampling.
Where a language has few strings of this length, the rows are all of them, weighted by their probability: then
validation_loss - entropy.mean(context) is the same number, and a Kullback-Leibler divergence.

`load` and `source.check_batch` raise every error that the data can cause before training, and text needs no torch for
either: a study can be vetted before it starts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gptlab.config import DataConfig
from gptlab.data.config_rules import check_data, settle_data
from gptlab.data.kinds import kind
from gptlab.data.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """What goes into a model and what should come out of it."""

    inputs: Tensor  # (B, T) int64 ids, or (B, features) float32 for vectors
    targets: Tensor  # (B, T) int64: the next id of each, or (B, outputs) float32
    # In validation only. Weights add up to 1 over the list of batches; 0 where a target is scored by another row.
    weights: Tensor | None = None  # (B, T) float64
    surprisal: Tensor | None = None  # (B, T) float64, validation of languages only: -ln p(target | row so far)
    documents: Tensor | None = None  # (B, T) int64: which document (or independent piece) a target belongs to


class Entropy(Protocol):
    """The exact floor of a language, in nats. No causal model can have a lower expected loss."""

    def by_position(self, context: int) -> list[float]:
        """For each of the T targets of a row: its entropy given all of the row before it."""
        ...

    def mean(self, context: int) -> float:
        """The mean of `by_position`: the floor of the loss."""
        ...

    def unigram(self, context: int) -> float:
        """The loss of knowing how frequent each id is among the targets, and nothing else."""
        ...


class TokenSource(ABC):
    """Where token ids come from: text (gptlab.data.corpus), languages (gptlab.data.language), or a plugin."""

    where: str  # the config key (and value) that an error names
    tokenizer: Tokenizer
    vocab_size: int  # the model's; every id is below it
    hash: str  # SHA-256 (hex) of the content, or of all that the content follows from
    files: Sequence[str] = ()  # the file, folder or glob that the content was read from: they are looked at again later

    @property
    def entropy(self) -> Entropy | None:
        """The floor; None where nobody knows it, as for text."""
        return None

    @abstractmethod
    def unigram(self, context: int) -> float:
        """Entropy of the frequencies in nats: exact for a language, that of the training split for text."""

    @abstractmethod
    def batch(self, batch_size: int, context: int) -> Batch:
        """One fixed batch for measurements at initialisation."""

    @abstractmethod
    def train_batch(self, step: int, batch_size: int, context: int, seed: int) -> Batch:
        """Batch number `step` (0 or more) of a seed."""

    @abstractmethod
    def validation_batches(self, tokens: int, context: int) -> list[Batch]:
        """Rows of at most `context` tokens that score about `tokens` targets, with weights; `rows_at_once` in a batch.

        Text scores fewer where it holds out fewer, never any twice, and the same ones whatever the context.
        """

    def held_out(self) -> int | None:
        """How many targets the held-out part has; None where a language never ends."""
        return None

    def scores_all(self, context: int) -> bool:
        """Whether validation takes all rows that there are, however few are asked for. Free of torch."""
        return False

    def bytes_per_token(self) -> Sequence[int] | None:
        """How many bytes of UTF-8 each id stands for; None where ids stand for no text."""
        return None

    def check_batch(self, batch_size: int, context: int) -> None:  # noqa: B027  most sources have batches of any size
        """ConfigError when `batch` cannot be had. Free of torch."""

    def vet(self, context: int) -> None:  # noqa: B027
        """ConfigError when rows of this context cannot be had from both splits. Tokenises text, if no cache has it."""


@dataclass(frozen=True)
class VectorSource:
    """Rows of numbers, for `deep_mlp`."""

    hash: str
    inputs: list[list[float]]
    targets: list[list[float]]
    tokenizer: None = None
    files: Sequence[str] = ()

    def batch(self, batch_size: int, context: int) -> Batch:
        """All the rows, in every batch: `batch_size` and `context` are for tokens."""
        import torch

        return Batch(torch.tensor(self.inputs, dtype=torch.float32), torch.tensor(self.targets, dtype=torch.float32))


def rows_at_once(context: int) -> int:
    """Rows in a batch of validation: a number that no key of the training moves, since sums depend on it."""
    return max(1, 4096 // context)


def load(data: DataConfig, vocab_size: int, seed: int) -> TokenSource | VectorSource:
    """The data that a config names. `vocab_size` is the model's; `seed` matters to random_tokens only."""
    data = settle_data(data, vocab_size)
    check_data(data, vocab_size)
    made: TokenSource | VectorSource = kind(data.source).make(data, vocab_size=vocab_size, seed=seed)
    return made
