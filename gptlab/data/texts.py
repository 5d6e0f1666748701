"""Kinds of data that are text: `python_docs`, `string` and `file`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gptlab.data.batches import Batch, TokenSource, rows_at_once
from gptlab.data.cache import cached, collected
from gptlab.data.corpus import Corpus, Part, split
from gptlab.data.text import Content, Text, check_ids, python_docs, text_of
from gptlab.data.text_files import text_of_files
from gptlab.data.tokenizer import Tokenizer, check_unicode, make_tokenizer
from gptlab.errors import ConfigError
from gptlab.registry import TEXT_TOKENIZERS, register
from gptlab.streams import generator

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

STRETCH = 1024  # targets in a row of the text; one number for all contexts, so that all of them score the same
FEWEST_DOCUMENTS = 8  # with fewer, stretches take their part where losses are told apart by document
ANY_TOKENIZER = (*TEXT_TOKENIZERS, "ids")


class TextSource(TokenSource):
    """Text and the tokenizer that reads it.

    `held_out`: how the validation part is chosen, and its share. `kept`: whether the tokens are kept on disk. `files`:
    what the text was read from, if it was. The fixed batch comes from the start of the whole text, so that it does not
    change with the split.
    """

    def __init__(
        self, where: str, text: Text, tokenizer: str, vocab_size: int, held_out: tuple[str, float], kept: bool = False,
        files: str = "",
    ) -> None:  # fmt: skip
        self.where, self.vocab_size, self._text, self._kept = where, vocab_size, text, kept
        self.files = [files] if files else []
        self._split, self._fraction = held_out
        self._content: Content = text.scan(tokenizer == "char")
        self.hash = self._content.hash
        characters = "".join(self._content.characters or ())
        self.tokenizer: Tokenizer = make_tokenizer(tokenizer, characters, vocab_size)
        if tokenizer == "char" and self.tokenizer.n_vocab > vocab_size:
            raise ConfigError(
                f"{where}: has {self.tokenizer.n_vocab} distinct characters (data.tokenizer=char), more than "
                f"model.vocab_size={vocab_size}. Choose other data (data=random_tokens fits) or a larger vocabulary.",
                code="too-many-characters",
                where=where,
                n_vocab=self.tokenizer.n_vocab,
                vocab_size=vocab_size,
            )

    def tokens(self, count: int) -> list[int]:
        """The first `count` ids. ConfigError when there are fewer, or one is outside the vocabulary."""
        try:
            ids = self._text.first_tokens(self.tokenizer, count)
        except ConfigError as error:
            raise self._named(error) from error
        check_ids(ids, self.tokenizer.name, self.vocab_size, self.where, "other data")
        if len(ids) < count:
            raise ConfigError(
                f"{self.where}: {len(ids)} tokens (data.tokenizer={self.tokenizer.name}), but {count} are needed. "
                "Give more text, or a smaller batch_size or context.",
                code="too-few-tokens",
                where=self.where,
                name=self.tokenizer.name,
                tokens=len(ids),
                count=count,
            )
        return ids

    def check_batch(self, batch_size: int, context: int) -> None:
        """ConfigError when the text starts with too few tokens, or with one outside the vocabulary."""
        self.tokens(batch_size * context + 1)

    def batch(self, batch_size: int, context: int) -> Batch:
        """The first `batch_size` windows: window i holds the tokens from i * context on, its targets are one further.

        Needs batch_size * context + 1 tokens. Every variant and every seed gets the same batch.
        """
        import torch

        ids = torch.tensor(self.tokens(batch_size * context + 1))
        return Batch(ids[:-1].view(batch_size, context), ids[1:].view(batch_size, context))

    def vet(self, context: int) -> None:
        """ConfigError unless both parts of the split have a row of `context` tokens and the one after it."""
        training, validation = (len(part) for part in self._parts)
        if min(training, validation) <= context:
            raise ConfigError(
                f"{self.where}: {training} tokens to train on and {validation} to validate on "
                f"(data.split={self._split}, data.validation_fraction={self._fraction:g}), but rows of {context} need "
                f"{context + 1} in each. Give more text, or a smaller context.",
                code="too-few-tokens-to-split",
                where=self.where,
                training=training,
                validation=validation,
                context=context,
            )

    def unigram(self, context: int) -> float:
        """Of the training part, in nats."""
        return self._parts[0].unigram

    def train_batch(self, step: int, batch_size: int, context: int, seed: int) -> Batch:
        """Rows from places in the training part, drawn uniformly by the stream (seed, "data", step)."""
        import torch

        part = self._parts[0]
        self._check_room(part, context)
        places = torch.randint(len(part) - context, (batch_size,), generator=generator(seed, "data", step))
        return _batch(part, places.numpy(), context)

    def validation_batches(self, tokens: int, context: int) -> list[Batch]:
        """Stretches at even distances over the held-out part, or all of it: rows that score each target once."""
        part = self._parts[1]
        self._check_room(part, context)
        starts, length = stretches(len(part) - 1, tokens)
        return list(_scored(part, starts, length, context))

    def held_out(self) -> int:
        """All tokens of the held-out part but the first, which nothing comes before."""
        return len(self._parts[1]) - 1

    def bytes_per_token(self) -> Sequence[int] | None:
        """As the tokenizer says."""
        return self.tokenizer.byte_lengths()

    def _check_room(self, part: Part, context: int) -> None:
        if len(part) <= context:
            self.vet(context)

    @cached_property
    def _parts(self) -> tuple[Part, Part]:
        if self._split == "document" and sum(length > 0 for length in self._content.lengths) < 2:
            raise ConfigError(
                f"data.split=document: {self.where} is a single document. data.split=position can hold out its end.",
                code="split-of-one-document",
                key="data.split",
                value="document",
                where=self.where,
            )
        corpus = self._corpus()
        check_ids([corpus.largest], self.tokenizer.name, self.vocab_size, self.where, "other data")
        if len(corpus.ids) < 2:
            raise ConfigError(
                f"{self.where}: {len(corpus.ids)} tokens. Training needs more text.",
                code="too-few-tokens-to-train",
                where=self.where,
            )
        return split(corpus, self._split, self._fraction, self.hash, self._content.lengths)

    def _corpus(self) -> Corpus:
        wide = self.tokenizer.name == "ids"
        try:
            if not self._kept:
                return collected(self._encoded(), wide)
            key = [self.hash, list(self._content.lengths), self.tokenizer.name]
            return cached(key, self._encoded, wide)
        except ConfigError as error:
            raise self._named(error) from error

    def _encoded(self) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        import numpy as np

        for number, piece in self._text.pieces():
            if self.tokenizer.name == "byte":  # as encode(), without a list of millions
                ids = np.frombuffer(piece.encode(), dtype=np.uint8)
            else:
                ids = np.array(self.tokenizer.encode(piece), dtype=np.int64)
            check_ids([int(ids.max(initial=0))], self.tokenizer.name, self.vocab_size, self.where, "other data")
            yield number, ids

    def _named(self, error: ConfigError) -> ConfigError:
        return (
            error
            if str(error).startswith(("data.path", self.where))
            else error.reworded(f"{self.where}: {error}", where=self.where)
        )


def _batch(part: Part, places: npt.NDArray[np.int64], context: int) -> Batch:
    import torch

    ids = torch.from_numpy(part.rows(places, context + 1))
    return Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())


def stretches(targets: int, tokens: int) -> tuple[npt.NDArray[np.int64], int]:
    """(starts, length) of the stretches that score about `tokens` of `targets`: no context has a say in it."""
    import numpy as np

    if tokens >= targets:
        return np.zeros(1, np.int64), targets
    length = min(STRETCH, tokens)
    count = tokens // length
    return np.arange(count, dtype=np.int64) * (targets - length) // max(1, count - 1), length


def _scored(part: Part, starts: npt.NDArray[np.int64], length: int, context: int) -> Iterator[Batch]:
    """Rows of `context` tokens over each stretch. The last one reaches back over targets that are scored already, so
    that all rows are of one length; there they weigh nothing."""
    import numpy as np
    import torch

    context = min(context, length)
    begins = np.minimum(np.arange(0, length, context), length - context)
    repeated = np.arange(0, length, context) - begins  # (rows of a stretch,): targets that the row before scores
    places, skipped = (starts[:, None] + begins).ravel(), np.tile(repeated, len(starts))
    few = len(np.unique(part.documents(places, context))) < FEWEST_DOCUMENTS
    at_once = rows_at_once(context)
    for first in range(0, len(places), at_once):
        some, skip = places[first : first + at_once], skipped[first : first + at_once]
        row = _batch(part, some, context)
        weights = (np.arange(context) >= skip[:, None]) / (length * len(starts))
        targets = some[:, None] + 1 + np.arange(context)
        numbers = targets // STRETCH if few else part.documents(some + 1, context)
        yield Batch(row.inputs, row.targets, torch.from_numpy(weights), None, torch.from_numpy(numbers))


@register("data", "python_docs")
def _python_docs(
    tokenizer: str, vocab_size: int, split: str = "document", validation_fraction: float = 0.1
) -> TextSource:
    """The language reference inside every Python: 465 KB of English, a document for each of its topics."""
    where = "data.source=python_docs"
    return TextSource(where, text_of(python_docs()), tokenizer, vocab_size, (split, validation_fraction))


@register("data", "string", tokenizers=ANY_TOKENIZER)
def _string(
    text: str, tokenizer: str, vocab_size: int, split: str = "position", validation_fraction: float = 0.1
) -> TextSource:
    """Text given in the config itself."""
    if not text:
        raise ConfigError(
            "data.text: is empty. data.source=string needs some text.", code="text-empty", key="data.text"
        )
    try:
        check_unicode(text)
    except ConfigError as error:
        raise error.reworded(f"data.text: {error}", key="data.text") from error
    return TextSource("data.text", text_of([text]), tokenizer, vocab_size, (split, validation_fraction))


@register("data", "file", tokenizers=ANY_TOKENIZER)
def _file(
    path: str, tokenizer: str, vocab_size: int, split: str = "position", validation_fraction: float = 0.1
) -> TextSource:
    """Files of UTF-8, one document each: a name, or a glob."""
    text = text_of_files(path)
    return TextSource(
        f"data.path={path}", text, tokenizer, vocab_size, (split, validation_fraction), kept=True, files=path
    )
