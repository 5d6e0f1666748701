"""From a data config to batches of tensors.

    source = load(config.data, vocab_size=config.model.vocab_size, seed=config.seed)
    batch = source.batch(batch_size=2, context=64)

`load` and `source.tokens` raise every error that the data can cause, and text needs no torch for either: a study can be
vetted before it starts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gptlab.config import DataConfig
from gptlab.data.check import check_data, settle_tokenizer
from gptlab.data.text import check_ids, first_tokens, read_text
from gptlab.data.tokenizer import Tokenizer, make_tokenizer
from gptlab.errors import ConfigError
from gptlab.streams import generator

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """What goes into a model and what should come out of it."""

    inputs: Tensor  # (B, T) int64 ids, or (B, features) float32 for vectors
    targets: Tensor  # (B, T) int64: the next id of each, or (B, outputs) float32


@dataclass(frozen=True)
class TokenSource:
    """A row of token ids and the tokenizer that reads them."""

    where: str  # the config key (and value) that an error names
    hash: str  # SHA-256 (hex) of the content
    tokenizer: Tokenizer
    vocab_size: int
    first: Callable[[int], list[int]]  # count -> the first `count` ids, fewer if there are no more

    def tokens(self, count: int) -> list[int]:
        """The first `count` ids. ConfigError when there are fewer, or one is outside the vocabulary."""
        try:
            ids = self.first(count)
        except ConfigError as error:
            raise ConfigError(f"{self.where}: {error}") from error
        check_ids(ids, self.tokenizer.name, self.vocab_size, self.where, "other data")
        if len(ids) < count:
            raise ConfigError(
                f"{self.where}: {len(ids)} tokens (data.tokenizer={self.tokenizer.name}), but {count} are needed. "
                "Give more text, or a smaller batch_size or context."
            )
        return ids

    def batch(self, batch_size: int, context: int) -> Batch:
        """The first `batch_size` windows: window i holds the tokens from i * context on, its targets are one further.

        Needs batch_size * context + 1 tokens. Text gives the same batch to every variant and every seed.
        """
        import torch

        ids = torch.tensor(self.tokens(batch_size * context + 1))
        return Batch(ids[:-1].view(batch_size, context), ids[1:].view(batch_size, context))


@dataclass(frozen=True)
class VectorSource:
    """Rows of numbers, for `deep_mlp`."""

    hash: str
    inputs: list[list[float]]
    targets: list[list[float]]
    tokenizer: None = None

    def batch(self, batch_size: int, context: int) -> Batch:
        """All the rows, in every batch: `batch_size` and `context` are for tokens."""
        import torch

        return Batch(torch.tensor(self.inputs, dtype=torch.float32), torch.tensor(self.targets, dtype=torch.float32))


def load(data: DataConfig, vocab_size: int, seed: int) -> TokenSource | VectorSource:
    """The data that a config names. `vocab_size` is the model's; `seed` matters to random_tokens only."""
    data = replace(data, tokenizer=settle_tokenizer(data, vocab_size))
    check_data(data, vocab_size)
    if data.source == "vectors":
        assert data.inputs, "check_data saw to it"
        assert data.targets, "check_data saw to it"
        return VectorSource(_hash([data.inputs, data.targets]), data.inputs, data.targets)
    if data.source == "random_tokens":
        tokenizer = make_tokenizer(data.tokenizer, "", vocab_size)
        content = _hash(["random_tokens", vocab_size, seed])  # the ids never end; this is what they follow from
        first = partial(_random_tokens, vocab_size, seed)
        return TokenSource("data.source=random_tokens", content, tokenizer, vocab_size, first)
    return _text_source(data, vocab_size)


def _text_source(data: DataConfig, vocab_size: int) -> TokenSource:
    where = {"file": f"data.path={data.path}", "string": "data.text"}.get(data.source, f"data.source={data.source}")
    text = read_text(data)
    tokenizer = make_tokenizer(data.tokenizer, text, vocab_size)
    if data.tokenizer == "char" and tokenizer.n_vocab > vocab_size:
        raise ConfigError(
            f"{where}: has {tokenizer.n_vocab} distinct characters (data.tokenizer=char), more than "
            f"model.vocab_size={vocab_size}. Choose other data (data=random_tokens fits) or a larger model.vocab_size."
        )
    return TokenSource(
        where=where,
        hash=hashlib.sha256(text.encode()).hexdigest(),
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        first=partial(first_tokens, tokenizer, text),
    )


def _random_tokens(vocab_size: int, seed: int, count: int) -> list[int]:
    """Uniform over the vocabulary, from the stream (seed, "data")."""
    import torch

    ids: list[int] = torch.randint(vocab_size, (count,), generator=generator(seed, "data")).tolist()
    return ids


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
