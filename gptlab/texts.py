"""Texts that users gave, as they may be shown: nothing in them steers a terminal, and cut ones stay apart."""

from __future__ import annotations

import re
from collections.abc import Sequence

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
_MARKDOWN = re.compile(r"([\\`*\[\]|~<>&#]|(?<!\w)_|_(?!\w)|(?<=^)[-+](?=\s))")


def printable(text: str) -> str:
    """`text` with everything that could steer a terminal (control, escape, direction marks) written out as `\\x1b`.

    Any language's letters stay as they are. Backslashes are doubled, so that nothing is ambiguous.
    """
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in text)


def harmless(text: str) -> str:
    """A sentence of gptlab's own with whatever a user's words in it could steer a terminal by written out.

    Unlike `printable` it leaves backslashes and ends of lines: the sentence may hold a line to type.
    """
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def harmless_json(text: str) -> str:
    """A JSON document with what could steer a terminal as `\\u` escapes: to a program it says the same."""
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))


def clock(seconds: float) -> str:
    """`0:42`, `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def markdown(text: str) -> str:
    """`text` as Markdown that shows it, and does nothing else."""
    return _MARKDOWN.sub(lambda match: f"\\{match[0]}", text)


def cut(text: str, most: int) -> str:
    """At most `most` characters of `text`, with an ellipsis where it goes on."""
    return text if len(text) <= most else text[: most - 1] + ELLIPSIS


def cut_apart(labels: Sequence[str], most: int) -> list[str]:
    """Each label in at most `most` characters (a few more where many are alike), different ones still different.

    Of those that would be cut to one text, the middle is left out, where they are the same; their number in the list
    tells apart what even that leaves alike.
    """
    shown = {label: cut(label, most) for label in labels}
    for middle in (True, False):
        texts: dict[str, list[str]] = {}
        for label, text in shown.items():
            texts.setdefault(text, []).append(label)
        for alike in (group for group in texts.values() if len(group) > 1):
            for number, label in enumerate(alike, 1):
                shown[label] = _without_middle(label, most) if middle else f"{shown[label]} ({number})"
    return [shown[label] for label in labels]


def _without_middle(text: str, most: int) -> str:
    before = (most - 1) // 2
    return text if len(text) <= most else text[:before] + ELLIPSIS + text[len(text) - (most - 1 - before) :]


def lines(label: str, width: int) -> list[str]:
    """`label` broken after its `+` signs and commas into lines of at most `width`; longer pieces at other signs.

    A word is broken only where it is wider than a line.
    """
    result = [""]
    for piece in _pieces(label, "+,", width):
        if result[-1] and len(result[-1]) + len(piece) > width:
            result.append("")
        result[-1] += piece
    return [line for line in result if line] or [""]


def _pieces(label: str, after: str, width: int) -> list[str]:
    """Parts of `label` that end after one of the signs; those too wide are broken at lesser signs, then anywhere."""
    parts = [""]
    for character in label:
        parts[-1] += character
        if character in after:
            parts.append("")
    lesser = {"+,": "=./ ", "=./ ": "_-", "_-": ""}
    found: list[str] = []
    for part in filter(None, parts):
        if len(part) <= width:
            found.append(part)
        elif after:
            found += _pieces(part, lesser[after], width)
        else:
            found += [part[place : place + width] for place in range(0, len(part), width)]
    return found
