"""A file that cannot be used, in words: the one family of errors that reading a study knows.

Whatever is wrong with a file becomes a `DamagedError` at the border, where it is parsed, and costs the one run or plan
that it belongs to. What comes behind the border trusts the types that it is given.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gptlab.errors import GptlabError
from gptlab.store import files

SCHEMA = 1
# What JSON, CSV or YAML of any content can do to a reader: no such file, half a file, deep nesting, a number too large.
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


class DamagedError(GptlabError):
    """A file that cannot be used; the text names it. One kind, whatever the damage: it costs its owner."""

    def __init__(self, message: str, /, *, code: str = "damaged-file", **facts: Any) -> None:
        super().__init__(message, code=code, **facts)


@contextmanager
def parsing(name: str) -> Iterator[None]:
    """Whatever goes wrong in the body is damage to the file `name`."""
    try:
        yield
    except FileNotFoundError:
        raise DamagedError(f"{name} is missing") from None
    except UNREADABLE as error:
        raise DamagedError(f"{name}: {reason(error)}") from error


def load_object(path: Path | str) -> dict[str, Any]:
    """The JSON object in `path`. DamagedError when there is none or when it is of a newer schema."""
    name = os.path.basename(path)
    try:
        content = files.read_json(path)
    except FileNotFoundError:
        raise DamagedError(f"{name} is missing") from None
    except UNREADABLE as error:
        raise DamagedError(f"{name}: {reason(error)}") from error
    if not isinstance(content, dict):
        raise DamagedError(f"{name}: not a JSON object")
    schema = content.get("schema", SCHEMA)
    if isinstance(schema, int) and schema > SCHEMA:
        raise DamagedError(f"{name}: schema {schema}, written by a newer gptlab; this one reads up to {SCHEMA}")
    return content


def reason(error: BaseException) -> str:
    """Why a file could not be read, in a few words."""
    if isinstance(error, json.JSONDecodeError):
        return f"not valid JSON (line {error.lineno}: {error.msg})"
    if isinstance(error, UnicodeDecodeError):
        return "not text in UTF-8"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"not as it should be ({type(error).__name__}: {(str(error) or '?').splitlines()[0]})"
