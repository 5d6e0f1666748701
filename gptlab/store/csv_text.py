"""CSV that comes back as it was: with Python's csv, with pandas.read_csv at its defaults, and from a spreadsheet.

A text that one of them would take for something else (a formula, a number, a missing value) starts with an apostrophe,
as does a text that starts with one; `unguarded` takes it off. A cell with a line end of any kind is quoted, also one
with a bare carriage return. Numbers are never touched; nothing at all stands for what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
_MISSING = frozenset(
    ("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None",
     "n/a", "nan", "null", "-nan", "-NaN")
)  # fmt: skip
_BOOLEANS = frozenset(("true", "false"))
_QUOTED = frozenset(',"\r\n')


def csv_text(columns: Sequence[str], rows: Iterable[Iterable[Any]], digits: int | None = None) -> str:
    """A header and a line for each row; lines end with a newline alone. `digits`: significant ones of a fraction."""
    return "".join(",".join(_written(cell, digits) for cell in line) + "\n" for line in (columns, *rows))


def guarded(cell: Any) -> Any:
    """`cell` as it may stand in a CSV file; only a text changes."""
    return f"'{cell}" if isinstance(cell, str) and _is_taken_for_more(cell) else cell


def unguarded(cell: str) -> str:
    """The text that `guarded` was given."""
    return cell[1:] if cell.startswith("'") else cell


def is_missing(text: str) -> bool:
    """Whether readers of tables take this text for a missing value."""
    return text in _MISSING


def _is_taken_for_more(text: str) -> bool:
    if text.startswith(_FORMULA):
        return True
    bare = text.strip()
    return bare in _MISSING or bare.lower() in _BOOLEANS or _is_number(bare)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _written(cell: Any, digits: int | None) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return repr(float(cell)) if digits is None else f"{cell:.{digits}g}"
    text = str(guarded(cell))
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if not _QUOTED.isdisjoint(text) else text
