"""Text as documents that are read piece by piece, and the way from text to checked token ids."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gptlab.data.tokenizer import Tokenizer
from gptlab.errors import ConfigError, wrong_value

PIECE = 1 << 22  # characters: a piece is about this long, so that memory does not grow with the text
LONGEST_PIECE = 1 << 26  # where no safe place to cut turns up, the text is cut here all the same
_SAFE_CUT = re.compile(r"(?<=\S)[ \n]")


@dataclass(frozen=True)
class Content:
    """What one pass over a text finds."""

    hash: str  # SHA-256 (hex) of the UTF-8 of all documents, with a line end between two
    lengths: tuple[int, ...]  # characters in each document
    characters: frozenset[str] | None  # the distinct ones; None when not asked for


@dataclass(frozen=True)
class Text:
    """Documents in order. Line ends are kept as they are."""

    documents: Callable[[], Iterable[Iterable[str]]]  # starts from the beginning at each call; a document is in chunks
    scan: Callable[[bool], Content]  # whether the characters are wanted -> what a pass over the text finds

    def pieces(self) -> Iterator[tuple[int, str]]:
        """(number of the document, piece of it). Tokenised one by one, pieces give the tokens of their document."""
        for number, chunks in enumerate(self.documents()):
            held = "\n" if number else ""  # between two documents
            for chunk in chunks:
                held += chunk
                cut = 0
                if len(held) >= PIECE:
                    cut = last_safe_cut(held) or (len(held) if len(held) >= LONGEST_PIECE else 0)
                if cut:
                    yield number, held[:cut]
                    held = held[cut:]
            if held:
                yield number, held

    def first_tokens(self, tokenizer: Tokenizer, count: int) -> list[int]:
        """The first `count` ids, fewer if there are no more."""
        ids: list[int] = []
        for _, piece in self.pieces():
            ids += first_tokens(tokenizer, piece, count - len(ids))
            if len(ids) >= count:
                break
        return ids


def text_of(documents: Sequence[str]) -> Text:
    """Documents that are in memory anyway."""

    def chunks() -> Iterable[Iterable[str]]:
        return ([document] for document in documents)

    return Text(chunks, lambda characters: scan(chunks(), characters))


def scan(documents: Iterable[Iterable[str]], characters: bool) -> Content:
    """One pass: hash, lengths and, if wanted, the distinct characters."""
    digest, lengths, found = hashlib.sha256(), [], set[str]()
    for number, chunks in enumerate(documents):
        length = 0
        if number:
            digest.update(b"\n")
            found.add("\n")
        for chunk in chunks:
            digest.update(chunk.encode())
            length += len(chunk)
            if characters:
                found.update(chunk)
        lengths.append(length)
    return Content(digest.hexdigest(), tuple(lengths), frozenset(found) if characters else None)


def python_docs() -> list[str]:
    """The language reference that every Python carries for `help()`: 465 KB of English. Differs between Pythons."""
    from pydoc_data.topics import topics

    return [topics[name] for name in sorted(topics)]


def encode_prompt(
    tokenizer: Tokenizer, prompt: str, vocab_size: int, where: str = "probes.generation.prompt"
) -> list[int]:
    """The ids of `prompt`, at least one, each below `vocab_size`. ConfigError, naming the key `where`, otherwise."""
    try:
        ids = tokenizer.encode(prompt)
    except ConfigError as error:
        raise error.reworded(f"{where}={shorten(prompt)}: {error}", key=where, value=prompt) from error
    if not ids:
        raise wrong_value(where, shorten(prompt), "is empty. A prompt needs at least one token.", code="prompt-empty")
    check_ids(ids, tokenizer.name, vocab_size, f"{where}={shorten(prompt)}", "another prompt")
    return ids


def check_ids(ids: Sequence[int], tokenizer: str, vocab_size: int, where: str, instead: str) -> None:
    """ConfigError when an id is not in the model's vocabulary. `instead`: what else the user could choose."""
    outside = next((i for i in ids if i >= vocab_size), None)
    if outside is None:
        return
    smaller = {"gpt2": "data.tokenizer=byte or char", "byte": "data.tokenizer=char"}.get(tokenizer)
    choices = ", ".join(filter(None, [smaller, instead]))
    raise ConfigError(
        f"{where}: token id {outside} (data.tokenizer={tokenizer}) is outside model.vocab_size={vocab_size}, which has "
        f"ids 0 to {vocab_size - 1}. Choose {choices} or a larger model.vocab_size.",
        code="token-outside-vocabulary",
        where=where,
        outside=outside,
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        choices=choices,
    )


def first_tokens(tokenizer: Tokenizer, text: str, count: int) -> list[int]:
    """The first `count` ids of `tokenizer.encode(text)` (fewer if there are no more), from no more text than needed."""
    length = 8 * count  # characters; twice what English text needs
    while True:
        start = safe_prefix(text, length)
        ids = tokenizer.encode(start)
        if len(ids) >= count or len(start) == len(text):
            return ids[:count]
        length *= 4


def safe_prefix(text: str, length: int) -> str:
    """The start of `text`, at least `length` characters, whose ids are the first ids of the whole text.

    It ends before a space or newline that follows a visible character. No token of any of the four tokenizers reaches
    across such a place, and none before it depends on what comes after.
    """
    cut = _SAFE_CUT.search(text, length)
    return text[: cut.start()] if cut else text


def shorten(text: str, limit: int = 40) -> str:
    """`text` in quotes, cut to about `limit` characters, for a message."""
    return repr(text if len(text) <= limit else text[: limit - 3] + "...")


def last_safe_cut(text: str) -> int:
    """The last place of that sort; 0 when there is none."""
    end = len(text)
    while (cut := max(text.rfind(" ", 0, end), text.rfind("\n", 0, end))) > 0:
        end = len(text[:cut].rstrip())  # at once over any number of spaces
        if end and text[end] in " \n":
            return end
    return 0
