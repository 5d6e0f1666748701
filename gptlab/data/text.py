"""Where text comes from, and the way from text to checked token ids."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence

from gptlab.config import DataConfig
from gptlab.data.tokenizer import Tokenizer, check_unicode
from gptlab.errors import ConfigError

_SAFE_CUT = re.compile(r"(?<=\S)[ \n]")


def read_text(data: DataConfig) -> str:
    """The whole text of a source that has one. Line ends are kept as they are; a byte order mark is dropped."""
    if data.source == "python_docs":
        return _python_docs()
    if data.source == "string":
        if not data.text:
            raise ConfigError("data.text: is empty. data.source=string needs some text.")
        try:
            check_unicode(data.text)
        except ConfigError as error:
            raise ConfigError(f"data.text: {error}") from error
        return data.text
    assert data.source == "file", data.source
    texts = [_read_file(path) for path in _matches(data.path or "")]
    if not any(texts):
        raise ConfigError(f"data.path={data.path}: is empty.")
    return "\n".join(texts)


def _python_docs() -> str:
    """The language reference that every Python carries for `help()`: 465 KB of English. Differs between Pythons."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


def _matches(pattern: str) -> list[str]:
    """The file of that very name, or the files that a glob matches (`**` for any depth), sorted by name."""
    where = f"data.path={pattern}"
    path = os.path.expanduser(pattern)
    if os.path.isdir(path):
        raise ConfigError(f"{where}: is a folder. Name a file, or a glob such as {os.path.join(pattern, '*.txt')}.")
    if os.path.lexists(path) and not os.path.isfile(path):
        raise ConfigError(f"{where}: is not a regular file.")
    found = [path] if os.path.isfile(path) else sorted(p for p in glob.glob(path, recursive=True) if os.path.isfile(p))
    if not found:
        what = "no file matches" if glob.has_magic(path) else "no such file"
        raise ConfigError(f"{where}: {what}. The working folder is {os.getcwd()}.")
    return found


def _read_file(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"data.path: {path}: byte {error.start} is not UTF-8. Convert the file first.") from error
    except OSError as error:
        raise ConfigError(f"data.path: {path}: cannot be read: {error.strerror or error}.") from error


def encode_prompt(
    tokenizer: Tokenizer, prompt: str, vocab_size: int, where: str = "probes.generation.prompt"
) -> list[int]:
    """The ids of `prompt`, at least one, each below `vocab_size`. ConfigError, naming the key `where`, otherwise."""
    try:
        ids = tokenizer.encode(prompt)
    except ConfigError as error:
        raise ConfigError(f"{where}={shorten(prompt)}: {error}") from error
    if not ids:
        raise ConfigError(f"{where}={shorten(prompt)}: is empty. A prompt needs at least one token.")
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
        f"ids 0 to {vocab_size - 1}. Choose {choices} or a larger model.vocab_size."
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
