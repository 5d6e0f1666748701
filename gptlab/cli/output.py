"""Standard output that may be full or closed, and an environment that was made for something else."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from gptlab.texts import harmless


def tell(text: object) -> None:
    """A line of gptlab's on stderr. Nothing in it steers a terminal, whatever names and files it speaks of."""
    print(harmless(f"gptlab: {text}"), file=sys.stderr, flush=True)


class Output:
    """Standard output as it is, until it fails: what cannot be written is lost then, and the command goes on.

    So a study is finished, with its files, though nobody can read its table.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream
        self.failure = None if stream else OSError(errno.EBADF, "it is closed")

    def write(self, text: str) -> int:
        if self.failure is None and self.stream:
            try:
                self.stream.write(text)
            except OSError as error:
                self._failed(error)
        return len(text)

    def flush(self) -> None:
        if self.failure is None and self.stream:
            try:
                self.stream.flush()
            except OSError as error:
                self._failed(error)

    def isatty(self) -> bool:
        return bool(self.stream and self.stream.isatty())

    def _failed(self, error: OSError) -> None:
        self.failure = error
        with suppress(OSError, ValueError, AttributeError):  # or Python complains once more when it exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())  # type: ignore[union-attr]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def standard_output() -> Iterator[Output]:
    """`sys.stdout` as an `Output`, flushed at the end, put back afterwards."""
    before = sys.stdout
    out = Output(before)
    sys.stdout = out
    try:
        yield out
    finally:
        out.flush()
        sys.stdout = before


def settle_environment() -> None:
    """What is gptlab's own to say, before anything reads it: figures are files, and text is UTF-8.

    `!gptlab` in a notebook inherits a backend that only the notebook's kernel has. Under another encoding, as in the
    C locale, words and paths could not be what the user typed: the same command starts once more, in UTF-8 mode.
    """
    os.environ["MPLBACKEND"] = "agg"
    if sys.getfilesystemencoding().lower() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    for stream in (sys.stdout, sys.stderr):  # PYTHONIOENCODING may ask for less than our texts need
        if isinstance(stream, io.TextIOWrapper):
            ascii_only = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding="utf-8" if ascii_only else None, errors="backslashreplace")
