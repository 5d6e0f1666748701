"""Files that are whole or not there at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path | str) -> Iterator[BinaryIO]:
    """A new file to write and seek in, which takes the place of `path` when the body ends without an exception.

    Temporary file beside it, flush, fsync, rename. Two processes may do so at once: the last one wins.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:  # not tempfile: its files ignore the umask
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
