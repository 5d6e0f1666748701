"""The little language of `gptlab ls --where`: read here and evaluated here. No `eval`, nothing that could run code.

    model.norm_placement == post and (loss < 5 or not state = finished) and label ~ relu and seed in (1, 2)

    expression   and, or, not, parentheses; `not` binds tightest, then `and`
    comparison   KEY == VALUE, also = != < <= > >= , ~ (contains), in (a, b); a KEY alone: is there, and is not false
    KEY          a column of `ls`, a metric, or a dotted key of the config
    VALUE        a number, true, false, null, 'text' or "text", or a bare word

A run that lacks the key fits no comparison but `== null`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gptlab.errors import ConfigError
from gptlab.store.names import bare_id

Values = Callable[[str], Any]  # key -> value of one run; None where it has none
Test = Callable[[Values], bool]

_TOKEN = re.compile(
    r"""\s*(?: (?P<text> '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
             | (?P<number> [-+]? (?:\d[\d_]*\.?\d*|\.\d+) (?:[eE][-+]?\d+)? (?![\w./+-]) )
             | (?P<sign> ==|!=|<=|>=|[=<>~(),] )
             | (?P<word> \[[^\]]*\] | [\w./+*-]+ ) )""",
    re.VERBOSE,
)
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None}
_DEEPEST = 50


def parse(text: str) -> tuple[Test, list[str]]:
    """The test that `text` stands for, and the keys that it asks for. ConfigError that shows the place of a mistake."""
    reader = _Reader(text)
    test = reader.any_of()
    reader.end()
    return test, reader.keys


def says(text: str, found: Any) -> bool:
    """Whether `text`, typed as a VALUE of any form, is the value that was found: `2` is 2.0, and `[a,b]` a list."""
    number = re.fullmatch(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?", text)
    return _equal(found, float(text) if number else _WORDS.get(text.lower(), text.strip("'\"")))


class _Reader:
    """Recursive descent over the tokens: (kind, text, place)."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        self._next, self._depth, self._of_id = 0, 0, False
        self.keys: list[str] = []
        place = 0
        while place < len(text.rstrip()):
            match = _TOKEN.match(text, place)
            if not match:
                raise self._mistake("this is no part of a condition", place, "no-part")
            kind = str(match.lastgroup)
            self._tokens.append((kind, match[kind], match.start(kind)))
            place = match.end()

    def any_of(self) -> Test:
        tests = [self._all_of()]
        while self._took("word", "or"):
            tests.append(self._all_of())
        return tests[0] if len(tests) == 1 else lambda values: any(test(values) for test in tests)

    def end(self) -> None:
        if self._next < len(self._tokens):
            raise self._mistake("`and` or `or` is missing here", self._tokens[self._next][2], "and-or")

    def _all_of(self) -> Test:
        tests = [self._one()]
        while self._took("word", "and"):
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else lambda values: all(test(values) for test in tests)

    def _one(self) -> Test:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._mistake(f"more than {_DEEPEST} levels", 0, "levels")
        try:
            if self._took("word", "not"):
                test = self._one()
                return lambda values: not test(values)
            if self._took("sign", "("):
                test = self.any_of()
                self._need("sign", ")")
                return test
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Test:
        kind, key, place = self._take("a key is missing")
        if kind != "word" or key in ("and", "or", "in"):
            raise self._mistake("a comparison starts with a key", place, "no-key")
        self.keys.append(key)
        self._of_id = key == "id"
        if self._took("word", "in"):
            self._need("sign", "(")
            members = [self._value()]
            while self._took("sign", ","):
                members.append(self._value())
            self._need("sign", ")")
            return lambda values: any(_equal(values(key), member) for member in members)
        operator = self._operator()
        if not operator:
            return lambda values: not any(values(key) is nothing for nothing in (None, False, ""))
        compare, value = _OPERATORS[operator], self._value()
        return lambda values: compare(values(key), value)

    def _operator(self) -> str:
        if self._next < len(self._tokens):
            kind, text, _ = self._tokens[self._next]
            if kind == "sign" and text in _OPERATORS:
                self._next += 1
                return text
        return ""

    def _value(self) -> Any:
        kind, text, place = self._take("a value is missing")
        if self._of_id and (digits := bare_id(text.strip("'\""))):
            return f"r{digits}"  # 4e632029 is no number here; with its letter and without
        if kind == "number":
            return float(text) if set(text) & set(".eE") else int(text)
        if kind == "text":
            return re.sub(r"\\(.)", r"\1", text[1:-1])
        if kind == "word":
            return _WORDS.get(text.lower(), text)
        raise self._mistake("a value is missing", place, "no-value")

    def _take(self, complaint: str) -> tuple[str, str, int]:
        if self._next == len(self._tokens):
            raise self._mistake(complaint, len(self._text), "end")
        self._next += 1
        return self._tokens[self._next - 1]

    def _took(self, kind: str, text: str) -> bool:
        found = self._next < len(self._tokens) and self._tokens[self._next][:2] == (kind, text)
        self._next += found
        return found

    def _need(self, kind: str, text: str) -> None:
        if not self._took(kind, text):
            place = self._tokens[self._next][2] if self._next < len(self._tokens) else len(self._text)
            raise self._mistake(f"`{text}` is missing here", place, text)

    def _mistake(self, what: str, place: int, cause: str) -> ConfigError:
        """The error for what is wrong from the character `place` on."""
        shown = f"{self._text[:place]}>>>{self._text[place:]}"
        return ConfigError(f"--where: {what}: {shown!r}", code="where-grammar", cause=cause, place=place)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal(found: Any, wanted: Any) -> bool:
    if found is None or wanted is None:
        return found is wanted
    if _is_number(found) and _is_number(wanted):
        return bool(found == wanted)
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    return _plain(found) == _plain(wanted)


def _plain(value: Any) -> str:
    """As it would be typed: `seed == "1"` and `options == [a,b]` need no thought about types."""
    return value if isinstance(value, str) else str(value).replace("'", "").replace(" ", "")


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def test(found: Any, wanted: Any) -> bool:
        if _is_number(found) and _is_number(wanted):
            return compare(found, wanted)
        return isinstance(found, str) and isinstance(wanted, str) and compare(found, wanted)

    return test


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "=": _equal,
    "!=": lambda found, wanted: (found is not None or wanted is None) and not _equal(found, wanted),
    "<": _ordered(lambda a, b: a < b),
    "<=": _ordered(lambda a, b: a <= b),
    ">": _ordered(lambda a, b: a > b),
    ">=": _ordered(lambda a, b: a >= b),
    "~": lambda found, wanted: found is not None and _plain(wanted) in _plain(found),
}
