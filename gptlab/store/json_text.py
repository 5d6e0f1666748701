"""JSON as runs keep it: no NaN, and no half of a character."""

from __future__ import annotations

import json
import re
from typing import Any

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def finite(value: Any) -> Any:
    """`value` with null for NaN and infinity, for which JSON has no word."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def parse_json(text: str) -> Any:
    """The value that `text` says. ValueError when it is no JSON.

    A lone surrogate stays as JSON escapes it: half a character fits into no UTF-8 file and no Arrow table.
    """
    value = json.loads(text)
    return _without_surrogates(value) if _SURROGATE.search(text) else value


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", errors="backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [_without_surrogates(entry) for entry in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(entry) for key, entry in value.items()}
    return value
