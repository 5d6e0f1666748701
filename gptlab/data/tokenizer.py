"""Text to token ids and back: `gpt2`, `byte`, `char`, `ids` and `words`.

All follow the same two rules:

* `encode` takes text as it stands. "<|endoftext|>" typed by a user is 13 plain characters, never the special token, so
  no text can end a document by accident. A lone surrogate (half a UTF-16 pair, which no UTF-8 file can hold) is refused
  with a ConfigError.
* `decode` takes any id. An untrained model with a vocabulary larger than the tokenizer's will produce ids that stand
  for no text; they decode to their number in angle brackets, "<50300>". Bytes that are no UTF-8 decode to U+FFFD.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from gptlab.data.gpt2 import gpt2_encoding
from gptlab.errors import ConfigError, unknown

_LONGEST_SPACE = 500_000  # tiktoken's pattern matcher overflows its stack (a panic, no exception) at about a million


class Tokenizer(Protocol):
    """What a tokenizer can do. Ids run from 0 to n_vocab - 1."""

    name: str
    n_vocab: int

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def byte_lengths(self) -> Sequence[int] | None:
        """How many bytes of UTF-8 each id stands for; None where ids stand for no text."""
        ...


class Gpt2Tokenizer:
    """GPT-2's byte-pair encoding, 50,257 ids."""

    name = "gpt2"

    def __init__(self) -> None:
        self._encoding = gpt2_encoding()
        self.n_vocab = self._encoding.n_vocab

    def encode(self, text: str) -> list[int]:
        check_unicode(text)
        if len(text) > _LONGEST_SPACE and any(len(m[0]) > _LONGEST_SPACE for m in re.finditer(r"\s+", text)):
            raise ConfigError(
                f"more than {_LONGEST_SPACE} spaces or line ends in a row. data.tokenizer=byte can read it.",
                code="too-many-spaces",
                longest_space=_LONGEST_SPACE,
            )
        return self._encoding.encode_ordinary(text)

    def decode(self, ids: Sequence[int]) -> str:
        # Joined as bytes first: one character may be spread over several tokens.
        pieces = (self._encoding.decode_single_token_bytes(i) if i < self.n_vocab else _number(i).encode() for i in ids)
        return b"".join(pieces).decode(errors="replace")

    def byte_lengths(self) -> list[int]:
        return [len(self._encoding.decode_single_token_bytes(i)) for i in range(self.n_vocab)]


class ByteTokenizer:
    """The 256 byte values of UTF-8."""

    name = "byte"
    n_vocab = 256

    def encode(self, text: str) -> list[int]:
        check_unicode(text)
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(bytes([i]) if i < 256 else _number(i).encode() for i in ids).decode(errors="replace")

    def byte_lengths(self) -> list[int]:
        return [1] * self.n_vocab


class CharTokenizer:
    """One id for each distinct character of `text`, in code point order."""

    name = "char"

    def __init__(self, text: str) -> None:
        check_unicode(text)
        self._chars = sorted(set(text))
        self._ids = {char: i for i, char in enumerate(self._chars)}
        self.n_vocab = len(self._chars)

    def encode(self, text: str) -> list[int]:
        try:
            return [self._ids[char] for char in text]
        except KeyError as error:
            raise ConfigError(
                f"character {error.args[0]!r} does not occur in the data, so data.tokenizer=char has no id for it.",
                code="unseen-character",
                value=error.args[0],
            ) from None

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self._chars[i] if i < self.n_vocab else _number(i) for i in ids)

    def byte_lengths(self) -> list[int]:
        return [len(char.encode()) for char in self._chars]


class IdsTokenizer:
    """Token ids written as integers, "3 1 4": for vocabularies that stand for no text."""

    name = "ids"

    def __init__(self, n_vocab: int) -> None:
        self.n_vocab = n_vocab

    def encode(self, text: str) -> list[int]:
        words = text.split()
        for word in words:
            if not re.fullmatch(r"[0-9]{1,18}", word):
                raise ConfigError(
                    f"data.tokenizer=ids reads integers of 0 or more, as in '3 1 4', not {word[:20]!r}.",
                    code="ids-not-integers",
                )
        return [int(word) for word in words]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(str(i) for i in ids)

    def byte_lengths(self) -> None:
        return None


class WordsTokenizer:
    """One id for each of a few given words, with spaces between them. For languages that have words of their own."""

    name = "words"

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self._ids = {word: i for i, word in enumerate(words)}
        self.n_vocab = len(self._words)

    def encode(self, text: str) -> list[int]:
        unknown_words = [word for word in text.split() if word not in self._ids]
        if unknown_words:
            raise unknown("data.tokenizer=words", unknown_words[0], self._words)
        return [self._ids[word] for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self._words[i] if i < self.n_vocab else _number(i) for i in ids)

    def byte_lengths(self) -> None:
        return None


def make_tokenizer(name: str, text_for_char: str, vocab_size: int) -> Tokenizer:
    """The tokenizer `name`. `char` takes its vocabulary from `text_for_char`, `ids` from the model's `vocab_size`."""
    makers: dict[str, Callable[[], Tokenizer]] = {
        "gpt2": Gpt2Tokenizer,
        "byte": ByteTokenizer,
        "char": lambda: CharTokenizer(text_for_char),
        "ids": lambda: IdsTokenizer(vocab_size),
    }
    if name not in makers:
        raise unknown("data.tokenizer", name, makers)
    return makers[name]()


def check_unicode(text: str) -> None:
    """ConfigError for a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = f"U+{ord(text[error.start]):04X}"
        raise ConfigError(
            f"character {error.start} is a lone surrogate ({found}), which is not text.",
            code="lone-surrogate",
            start=error.start,
            found=found,
        ) from error


def _number(token: int) -> str:
    return f"<{token}>"
