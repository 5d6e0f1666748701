"""Slips of YAML in plain words, with file and line: what stands there, and what would have to stand there."""

from __future__ import annotations

import re
from typing import Any

import yaml  # type: ignore[import-untyped]

from gptlab.errors import ConfigError

_NO_SPACE = re.compile(r"(\s*(?:- )?[A-Za-z_][\w.]*):([^\s:/][^:]*)")
_EQUALS = re.compile(r"(\s*[A-Za-z_][\w.]*)\s*=\s*(\S.*)")


def explained(error: yaml.YAMLError, text: str, place: str = "") -> ConfigError:
    """The ConfigError for what YAML says of `text`, the content of the file `place`; both may be unknown."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return ConfigError(f"{place or 'YAML'}: {(str(error).splitlines() or ['cannot be read'])[0]}.", code="yaml")
    lines = text.splitlines()
    said, cause = _other(error)
    line, words, code = _indentation_or_text(error, lines) or (mark.line, said, "yaml")
    for near in dict.fromkeys((line, mark.line, mark.line - 1)):  # YAML often notices a line later
        slip = _beside_colon(lines[near]) if 0 <= near < len(lines) else None
        if slip:
            line, (words, code) = near, slip
            break
    facts = {"cause": cause} if code == "yaml" else {}
    return at_line(place or str(mark.name), line + 1, words, code, **facts)


def at_line(file: str, line: int | None, said: str, code: str, **facts: Any) -> ConfigError:
    """The error for what stands in one line of a file."""
    return ConfigError(f"{file}, line {line}: {said}", code=code, file=file, line=line, **facts)


def misplaced(value: Any, key: str) -> tuple[str, str] | None:
    """(sentence, code) where a section holds `value` in place of keys because of a slip; None for another mistake."""
    if value is None:
        return f"{key}: has nothing below it. Its keys stand below it, two spaces deeper.", "yaml-indentation"
    if isinstance(value, str):
        return _beside_colon(value)
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return f"{key}: takes keys without a dash before them.", "yaml-dash"
    return None


def _beside_colon(line: str) -> tuple[str, str] | None:
    """(sentence, code) for `key:value` and `key=value`."""
    bare = line.partition(" #")[0].rstrip()
    match = _NO_SPACE.fullmatch(bare)
    if match and not match[2].startswith(("'", '"')):
        return f"a space is missing after the colon. Write {match[1].strip()}: {match[2]}", "yaml-space-after-colon"
    match = _EQUALS.fullmatch(bare)
    if match and ":" not in match[1]:
        written = f"{match[1].strip()}: {match[2]}"
        return f"a file has a colon where the command line has an equals sign. Write {written}", "yaml-equals-sign"
    return None


def _indentation_or_text(error: Any, lines: list[str]) -> tuple[int, str, str] | None:
    """(line from 0, sentence, code) for a line that stands too deep or not deep enough, and for text without quotes."""
    at, problem = error.problem_mark.line, error.problem or ""
    own = lines[at] if at < len(lines) else ""
    above = next((line for line in reversed(lines[:at]) if line.strip() and not line.lstrip().startswith("#")), "")
    deeper = _depth(own) > _depth(above)
    if "mapping values are not allowed" in problem:
        if own.count(": ") > 1:
            key, _, value = own.strip().partition(": ")
            return at, f"text that has a colon goes in quotes. Write {key}: '{value}'", "yaml-quotes"
        if deeper:
            words = (
                f"stands too deep: {_depth(own)} spaces, where the line above has {_depth(above)} and its own value."
            )
            return at, words, "yaml-indentation"
    if "expected <block end>" in problem:
        depths = sorted({_depth(line) for line in lines if line.strip() and not line.startswith("#")} - {_depth(own)})
        words = (
            f"stands between the other lines: {_depth(own)} spaces, where they have {' or '.join(map(str, depths))}."
        )
        return at, words, "yaml-indentation"
    if "sequence entries are not allowed" in problem:
        return at, "a dash begins a list, and no list can begin here.", "yaml-dash"
    return None


def _other(error: Any) -> tuple[str, str]:
    """(sentence, cause): what else YAML trips over. The mark of an opening is better than that of the file's end."""
    problem, context = error.problem or "", f"{getattr(error, 'context', '')}"
    opened = getattr(error, "context_mark", None)
    since = f" (opened in line {opened.line + 1})" if opened is not None else ""
    first = re.search(r"found character '(.+?)' that cannot start", problem)
    if "'\\t'" in problem:
        return "a tab stands where only spaces may; YAML indents with spaces.", "tab"
    if first:
        return f"text that begins with {first[1]} goes in quotes: '{first[1]}...'", "first-character"
    if "undefined alias" in problem or "alphabetic or numeric" in problem:
        return "text that begins with * or & goes in quotes.", "alias"
    if "quoted scalar" in context:
        return f"a quote is opened and not closed{since}.", "quote"
    if "flow mapping" in context:
        return f"a {{ is opened and not closed, or a comma is missing{since}.", "brace"
    if "flow sequence" in context:
        return f"a [ is opened and not closed, or a comma is missing{since}.", "bracket"
    if "could not find expected ':'" in problem:
        return f"a key has no colon and value{since}.", "colon"
    if problem.startswith("found duplicate key "):
        return f"{problem.removeprefix('found duplicate key ')} is given twice.", "twice"
    if "another document" in problem:
        return "a second document begins; a config file holds one.", "document"
    if "constructor for the tag" in problem:
        return "a tag with an exclamation mark; a config file holds plain data only.", "tag"
    return f"cannot be read: {problem}.", "other"


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
