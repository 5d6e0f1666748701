"""JSON as runs keep it: every number comes back, and no half of a character is in it.

JSON has no word for NaN and the two infinities: they are the strings "nan", "inf" and "-inf", which `float` reads.
Older files have null there.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def json_text(value: Any, indent: int | None = None) -> str:
    """`value` as JSON that any reader takes."""
    return json.dumps(plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """`value` with "nan", "inf" and "-inf" for the numbers that JSON has no word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value))
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
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
