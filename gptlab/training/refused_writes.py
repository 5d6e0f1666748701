"""Why a checkpoint could not be written, by the system's number: the libraries that write it tell words, or nothing."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import Any, BinaryIO

import torch


def system_error(error: Exception) -> int:
    """The number of the system's error, which safetensors tells in words alone: (os error 28)."""
    number = re.search(r"os error (\d+)", str(error))
    return int(number[1]) if number else errno.EIO


def save_optimizers(optimizers: list[dict[str, Any]], path: Path) -> None:
    """torch.save into a file of ours: of what the system says about its own, no word is left."""
    with path.open("wb") as file:
        noting = Noting(file)
        try:
            torch.save(optimizers, noting)  # type: ignore[arg-type]
        except RuntimeError as error:
            if noting.error is not None:
                raise noting.error from error
            raise


class Noting:
    """A file that remembers the error which a write ended with."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.name = file, file.name
        self.error: OSError | None = None

    def write(self, content: Any) -> int:
        try:
            return self._file.write(content)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self._file.flush()
