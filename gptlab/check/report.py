"""What a check says: one line each, `pass`, `fail` or `not applicable`, with the reason and the number."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["pass", "fail", "not applicable"]


@dataclass(frozen=True)
class Verdict:
    """What one check found. `value` is the number behind the words, where there is one."""

    status: Status
    reason: str
    value: float | None = None


@dataclass(frozen=True)
class Line:
    """A verdict with the name of its check."""

    check: str
    status: Status
    reason: str
    value: float | None = None


@dataclass(frozen=True)
class Report:
    """All lines about one variant."""

    label: str
    lines: tuple[Line, ...]

    @property
    def passed(self) -> bool:
        """Whether no line failed."""
        return all(line.status != "fail" for line in self.lines)

    def to_json(self) -> dict[str, Any]:
        return {"label": self.label, "passed": self.passed, "lines": [asdict(line) for line in self.lines]}


def passed(reason: str, value: float | None = None) -> Verdict:
    """It holds."""
    return Verdict("pass", reason, value)


def failed(reason: str, value: float | None = None) -> Verdict:
    """It does not hold, and here is what was seen."""
    return Verdict("fail", reason, value)


def not_applicable(reason: str) -> Verdict:
    """This variant has nothing to check here."""
    return Verdict("not applicable", reason)
