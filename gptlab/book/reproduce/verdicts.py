"""From a published and a measured value to a verdict."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from gptlab.book.reproduce.claims import Claim

Verdict = Literal["reproduced", "within tolerance", "differs", "not computable here"]


@dataclass(frozen=True)
class Found:
    """What a check measured, and the computation in a sentence where the value alone does not say enough."""

    value: Any
    shows: str = ""


@dataclass(frozen=True)
class Result:
    """One claim with what came out. `why` is said for what differs or cannot be computed, `shows` is the working."""

    claim: Claim
    verdict: Verdict
    got: Any = None
    shows: str = ""
    as_expected: bool = True
    seconds: float = 0.0

    @property
    def difference(self) -> float | None:
        """Measured minus published, of several numbers the one that is furthest off; None between words."""
        pairs = _pairs(self.claim.value, self.got)
        if not pairs or self.claim.rule[0] in ("at most", "at least"):
            return None
        return max((got - expected for expected, got in pairs), key=abs)


def judge(claim: Claim, found: Found, seconds: float = 0.0) -> Result:
    """The verdict on a measured value: as printed (to its last digit), within tolerance, or different."""
    verdict: Verdict = "differs"
    if _as_printed(claim, found.value):
        verdict = "reproduced"
    elif _within(claim, found.value):
        verdict = "within tolerance"
    agreed = "reproduced" if verdict == "within tolerance" else verdict
    return Result(claim, verdict, found.value, found.shows, agreed == claim.verdict, seconds)


def _as_printed(claim: Claim, got: Any) -> bool:
    kind, _ = claim.rule
    pairs = _pairs(claim.value, got)
    if pairs is None:
        return bool(claim.value == got)
    if kind in ("at most", "at least"):
        return all(value <= bound if kind == "at most" else value >= bound for bound, value in pairs)
    if all(expected == value for expected, value in pairs):
        return True
    if not _within(claim, got):
        return False
    digits = [Decimal(text).as_tuple().exponent for text in _numbers(claim.expected)]
    return len(digits) == len(pairs) and all(
        round(value, -int(n)) == expected for (expected, value), n in zip(pairs, digits, strict=True)
    )


def _within(claim: Claim, got: Any) -> bool:
    kind, size = claim.rule
    pairs = _pairs(claim.value, got)
    if not pairs or kind not in ("abs", "rel"):
        return False
    return all(abs(value - expected) <= size * (abs(expected) if kind == "rel" else 1) for expected, value in pairs)


def _pairs(expected: Any, got: Any) -> list[tuple[float, float]] | None:
    """(published, measured) number by number; None where the two are not numbers alike."""
    one, other = list(_flat(expected)), list(_flat(got))
    if len(one) != len(other) or not all(map(_is_number, one + other)):
        return None
    return list(zip(one, other, strict=True))


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _numbers(text: str) -> list[str]:
    return re.findall(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", text)
