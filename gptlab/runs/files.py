"""The only place that writes files: each write is whole or not there at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gptlab.atomic import replacing


def write_bytes(path: Path | str, content: bytes) -> None:
    """Replace `path` by `content` in one step: temporary file beside it, flush, fsync, rename."""
    with replacing(path) as file:
        file.write(content)


def write_text(path: Path | str, content: str) -> None:
    """As `write_bytes`, in UTF-8. Characters that UTF-8 cannot hold (lone surrogates) are escaped."""
    write_bytes(path, content.encode("utf-8", errors="backslashreplace"))


def write_json(path: Path | str, value: Any) -> None:
    """As `write_text`. NaN and infinity become null, because JSON has no word for them."""
    write_text(path, json.dumps(_finite(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path | str) -> Any:
    """The JSON value in `path`. OSError or ValueError when it cannot be had."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
