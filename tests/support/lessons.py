"""Pages whose commands are followed by what they print: a `sh` block, then a `text` block, in turn.

Of the output, a page shows lines; each has to be there, up to one unit of a last decimal. "..." stands for columns
that are left out. What follows `<!-- trained -->` may differ by a few per cent: its digits depend on the processor.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.support.fences import ROOT

_STEP = re.compile(r"```sh\n(.*?)```(.*?)(?=```sh\n|\Z)", re.DOTALL)
_TEXT = re.compile(r"```text\n(.*?)```", re.DOTALL)
_NUMBER = re.compile(r"[x+-]?[\d,]*\d(?:\.\d+)?(?:e[+-]?\d+)?%?")
TRAINED = "<!-- trained -->"
_CLOSE = 0.05  # of a trained value


@dataclass(frozen=True)
class Step:
    """Commands, and the lines that they have to print."""

    page: str
    commands: str
    shown: tuple[str, ...]
    trained: bool

    def missing(self, output: str) -> list[str]:
        """The lines that the output lacks."""
        printed = [line.split() for line in output.splitlines()]
        return [line for line in self.shown if not any(self._is(line.split(), found) for found in printed)]

    def _is(self, shown: list[str], printed: list[str]) -> bool:
        if "..." in shown:
            place = shown.index("...")
            return self._is(shown[:place], printed[:place]) and self._is_end(shown[place + 1 :], printed[place:])
        return len(shown) == len(printed) and all(map(self._equal, shown, printed))

    def _is_end(self, shown: list[str], printed: list[str]) -> bool:
        return not shown or self._is(shown, printed[-len(shown) :])

    def _equal(self, shown: str, printed: str) -> bool:
        if not (_NUMBER.fullmatch(shown) and _NUMBER.fullmatch(printed)):
            return shown == printed
        (one, unit), (other, _) = _number(shown), _number(printed)
        if not self.trained:
            return abs(one - other) <= unit
        if shown[0] in "+-":  # a difference of trained values: its direction
            return shown[0] == printed[0]
        return abs(one - other) <= _CLOSE * max(abs(one), abs(other))


def _number(text: str) -> tuple[float, float]:
    """A printed number, and a little more than one unit of its last decimal (builds of torch differ), 0 if whole."""
    plain = text.strip("x%").replace(",", "")
    digits, _, power = plain.partition("e")
    decimals = len(digits.partition(".")[2])
    return float(plain), 1.01 * 10.0 ** (int(power or 0) - decimals) if decimals else 0.0


def steps(page: str) -> list[Step]:
    """The steps of a page, in order. A block of commands without a block of text has nothing to show."""
    found = []
    for commands, after in _STEP.findall((ROOT / page).read_text(encoding="utf-8")):
        shown = [line for text in _TEXT.findall(after) for line in text.splitlines() if line.strip()]
        found.append(Step(page, commands, tuple(shown), TRAINED in after))
    return found


def numbers_of_prose(page: str) -> list[str]:
    """The figures of two digits or more outside of blocks, tables, headings, links and code."""
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)|<!--.*?-->", " ", text, flags=re.DOTALL)
    text = re.sub(r"^[#|].*$|(?<=exercise )\d\.\d", " ", text, flags=re.MULTILINE)
    return re.findall(r"(?<![\w.,])\d[\d,]*\d(?:\.\d+)?(?!\w)|(?<![\w.,])\d\.\d+", text)
