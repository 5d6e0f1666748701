"""Text from files of UTF-8, checked once and read in pieces."""

from __future__ import annotations

import codecs
import functools
import glob
import os
from collections.abc import Iterable, Iterator

from gptlab.data import text
from gptlab.errors import ConfigError, wrong_value
from gptlab.store.data_files import Stamp, stamp_of


def text_of_files(pattern: str) -> text.Text:
    """The file of that very name, or all that a glob matches: one document each. A byte order mark is dropped.

    ConfigError for files that cannot be read, hold no text or are not UTF-8: each is read once per process to know.
    """
    paths = _matches(pattern)

    def chunks() -> Iterable[Iterable[str]]:
        return (_read_chunks(path) for path in paths)

    def scan_files(characters: bool) -> text.Content:
        return _scan_files(tuple(_stamp(path) for path in paths), characters)

    if not any(scan_files(False).lengths):
        raise wrong_value("data.path", pattern, "is empty.", code="text-path-empty")
    return text.Text(chunks, scan_files)


@functools.lru_cache(maxsize=16)  # a sweep vets the same files for each of its runs
def _scan_files(stamps: tuple[tuple[str, Stamp], ...], characters: bool) -> text.Content:
    return text.scan((_read_chunks(path) for path, _ in stamps), characters)


def _stamp(path: str) -> tuple[str, Stamp]:
    try:
        return os.path.abspath(path), stamp_of(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _matches(pattern: str) -> list[str]:
    """The file of that very name, or the files that a glob matches (`**` for any depth), sorted by name."""
    where = f"data.path={pattern}"
    path = os.path.expanduser(pattern)
    if os.path.isdir(path):
        raise ConfigError(
            f"{where}: is a folder. Name a file, or a glob such as {os.path.join(pattern, '*.txt')}.",
            code="text-path-is-a-folder",
            where=where,
        )
    if os.path.lexists(path) and not os.path.isfile(path):
        raise ConfigError(f"{where}: is not a regular file.", code="text-path-not-a-file", where=where)
    found = [path] if os.path.isfile(path) else sorted(p for p in glob.glob(path, recursive=True) if os.path.isfile(p))
    if not found:
        what = "no file matches" if glob.has_magic(path) else "no such file"
        raise ConfigError(
            f"{where}: {what}. The working folder is {os.getcwd()}.", code="text-path-not-found", where=where
        )
    return found


def _read_chunks(path: str) -> Iterator[str]:
    """The text of one file in chunks of about a piece."""
    decoder, read = codecs.getincrementaldecoder("utf-8-sig")(), 0
    try:
        with open(path, "rb") as file:
            while block := file.read(text.PIECE):
                held = len(decoder.getstate()[0])  # bytes of a character that the last block began
                try:
                    yield decoder.decode(block)
                except UnicodeDecodeError as error:
                    raise _not_utf8(path, read - held + error.start) from error
                read += len(block)
            try:
                decoder.decode(b"", final=True)
            except UnicodeDecodeError as error:
                raise _not_utf8(path, read - len(error.object)) from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _not_utf8(path: str, byte: int) -> ConfigError:
    return ConfigError(
        f"data.path: {path}: byte {byte} is not UTF-8. Convert the file first.",
        code="text-not-utf8",
        key="data.path",
        path=path,
        byte=byte,
    )


def _unreadable(path: str, error: OSError) -> ConfigError:
    return ConfigError(
        f"data.path: {path}: cannot be read: {error.strerror or error}.",
        code="text-unreadable",
        key="data.path",
        path=path,
    )
