"""Was the comparison fair? Ten lines, each computed from a study's files and from nothing that anybody declares.

`pass`, `fail` (with the command that would mend it) or `not asked`: the study did not try. What needs tuned rates,
matched twins or a ladder of sizes reads their records in plan.json (docs/audit.md), and is not asked without one.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gptlab.comparing import audit_lines as lines
from gptlab.comparing import cautions
from gptlab.comparing.assemble import compare
from gptlab.comparing.audit_cost import matched
from gptlab.comparing.audit_lines import FAIL, NOT_ASKED, PASS, Line, Status
from gptlab.comparing.comparable import OTHER
from gptlab.comparing.comparison import Comparison
from gptlab.comparing.rates import audited
from gptlab.comparing.rates.arms import arms_of
from gptlab.errors import ConfigError
from gptlab.store.damage import DamagedError, load_object
from gptlab.store.names import PLAN, PLANS
from gptlab.store.plan_history import plan_documents

SCHEMA = 1


@dataclass(frozen=True)
class Audit:
    """The lines, and what they are about. `protocol`: SHA-256 of what the first plan fixed. `notes`: what may blur the
    differences, and is no line of the protocol: pairs of other code, machines or kernels."""

    study: str
    folder: Path
    protocol: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    command: str = ""  # of the study, for a shell

    @property
    def verdict(self) -> Status:
        """The worst line: one that failed, else one that was not asked."""
        found = {line.status for line in self.lines}
        return FAIL if FAIL in found else NOT_ASKED if NOT_ASKED in found else PASS

    @property
    def counted(self) -> str:
        """`2 pass, 1 fail, 7 not asked`."""
        found = [line.status for line in self.lines]
        return ", ".join(f"{found.count(status)} {status}" for status in (PASS, FAIL, NOT_ASKED) if status in found)

    def to_json(self) -> dict[str, Any]:
        """The documented schema: docs/audit.md."""
        return {
            "schema": SCHEMA,
            "study": self.study,
            "folder": str(self.folder),
            "protocol_sha256": self.protocol,
            "verdict": self.verdict,
            "lines": [{"line": number, **asdict(line)} for number, line in enumerate(self.lines, 1)],
            "notes": list(self.notes),
        }


def audit(folder: Path) -> Audit:
    """Read the study in `folder` and judge its protocol. ConfigError where it has no plan to be held against."""
    latest = _plan(folder)
    return _judged(folder, latest, compare([folder]))


def audit_of(folder: Path, comparison: Comparison) -> Audit | None:
    """The same for a comparison of this study that has been made; None where there is no plan."""
    try:
        return _judged(folder, _plan(folder), comparison)
    except ConfigError:
        return None


def _plan(folder: Path) -> dict[str, Any]:
    try:
        return load_object(folder / PLAN)
    except DamagedError as damage:
        words = f"audit: {folder} is no study with a plan ({damage})."
        raise ConfigError(words, code="no-plan", file=str(folder)) from None


def _judged(folder: Path, latest: dict[str, Any], comparison: Comparison) -> Audit:
    first = next(iter(plan_documents(folder)), None) or _only_plan(folder) or latest
    command = shlex.join(str(word) for word in latest.get("command") or ("gptlab",))
    ladder = lines.record(latest, "ladder")
    tuning = next((source.plan.tuning for source in comparison.sources), None)
    rates = arms_of(tuning, folder) if tuning else {}
    found = (
        lines.fixed(first, latest, comparison, command),
        audited.tuned(rates, command),
        audited.apart(tuning, comparison),
        matched(lines.record(latest, "match"), comparison, command),
        lines.sizes(ladder, command),
        lines.seeds(folder, comparison),
        lines.ended(comparison, command),
        lines.law(ladder, command),
        audited.shown(rates, comparison, command),
        lines.capability(comparison),
    )
    notes = (f"{row.label}: {flag}." for row in comparison.rows for flag in row.flags if flag.startswith(OTHER))
    archived = cautions.archived(comparison.sources)
    return Audit(comparison.title, folder, lines.protocol(first), found, (*notes, *archived), command)


def _only_plan(folder: Path) -> dict[str, Any] | None:
    names = sorted((folder / PLANS).glob("*.json"))
    try:
        return load_object(names[0]) if names else None
    except DamagedError:
        return None


def listed(judged: Sequence[Line], command: str = "") -> list[str]:
    """The lines as text: number, status, name, reason, and what would mend it.

    `command`: the study's own, which mending mostly is with a word more. It is said once, below.
    """
    found = []
    beyond = False
    for number, line in enumerate(judged, 1):
        found.append(f"{number:2}  {line.status:9}  {line.name}: {line.reason}")
        if line.mend and line.status != PASS:
            own = bool(command) and (line.mend == command or line.mend.startswith(f"{command} "))
            beyond = beyond or own
            added = line.mend.removeprefix(command).strip()
            words = (f"add {added}" if added else "run the command again") if own else line.mend
            found.append(f"{'':15}{words}")
    return [*found, f"The study's command: {command}"] if beyond else found
