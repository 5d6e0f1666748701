"""The claims: one line of `claims.csv` each. Free of torch, so that a wrong group is refused at once.

expected    what was published, as a Python literal (a number, a tuple, True) or as plain words
tolerance   exact; abs X or rel X for numbers; at most, at least for bounds
verdict     what is expected to come out: reproduced (within tolerance counts), differs, not computable here
note        why it cannot be computed here; for a claim that can, what has to be there for it (`needs gptlab.training`)
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from gptlab.errors import ConfigError, GptlabError, unknown

FILE = Path(__file__).with_name("claims.csv")
VERDICTS = ("reproduced", "differs", "not computable here")
TOLERANCES = ("exact", "abs", "rel", "at most", "at least")


@dataclass(frozen=True)
class Claim:
    """One published statement, and what is expected of it."""

    id: str
    group: str
    source: str
    claim: str
    expected: str
    tolerance: str
    verdict: str
    note: str = ""

    @property
    def value(self) -> Any:
        """What was published, as a value; plain words stay words."""
        try:
            return ast.literal_eval(self.expected)
        except (ValueError, SyntaxError):
            return self.expected

    @property
    def rule(self) -> tuple[str, float]:
        """(kind, size) of the tolerance: ("abs", 0.005)."""
        kind, _, size = self.tolerance.rpartition(" ")
        return (kind, float(size)) if kind in ("abs", "rel") else (self.tolerance, 0.0)

    @property
    def computable(self) -> bool:
        return self.verdict != VERDICTS[2]


def load_claims(path: Path = FILE) -> list[Claim]:
    """All claims. GptlabError, with the line, for a file that is not as this module describes it."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise GptlabError(f"{path.name}: cannot be read: {error}.", code="claims-unreadable", name=path.name) from error
    names = [f.name for f in fields(Claim)]
    if list(reader.fieldnames or []) != names:
        raise GptlabError(
            f"{path.name}: its columns have to be {', '.join(names)}.", code="claims-columns", name=path.name
        )
    claims: dict[str, Claim] = {}
    for line, row in rows:
        claim = _claim(row, f"{path.name}, line {line}")
        if claim.id in claims:
            raise GptlabError(
                f"{path.name}, line {line}: the id {claim.id!r} is there already.",
                code="claims-id-twice",
                name=path.name,
                line=line,
                id=claim.id,
            )
        claims[claim.id] = claim
    return list(claims.values())


def _claim(row: dict[str, Any], where: str) -> Claim:
    if None in row or None in row.values():
        raise GptlabError(f"{where}: has more or fewer cells than there are columns.", code="claims-cells", where=where)
    claim = Claim(**row)
    if not claim.id.strip():
        raise GptlabError(f"{where}: the id is missing.", code="claims-id-missing", where=where)
    where = f"{where} ({claim.id})"
    empty = [name for name in ("group", "source", "claim", "expected") if not getattr(claim, name)]
    if empty:
        raise GptlabError(f"{where}: {empty[0]} is missing.", code="claims-cell-missing", where=where, column=empty[0])
    if claim.verdict not in VERDICTS:
        raise unknown(f"{where}: verdict", claim.verdict, VERDICTS)
    if not claim.computable and not claim.note:
        raise GptlabError(
            f"{where}: the note has to say why it cannot be computed here.", code="claims-note-missing", where=where
        )
    try:
        kind, _ = claim.rule
    except ValueError:
        kind = claim.tolerance
    if kind not in TOLERANCES:
        raise unknown(f"{where}: tolerance", claim.tolerance, TOLERANCES)
    return claim


def groups_of(claims: Iterable[Claim]) -> list[str]:
    """The names of the groups, in the order of the file."""
    return list(dict.fromkeys(claim.group for claim in claims))


def chosen(claims: Sequence[Claim], groups: Sequence[str]) -> list[Claim]:
    """The claims of these groups (or with these ids); all of them for none. ConfigError for an unknown word."""
    known = groups_of(claims)
    ids = {claim.id for claim in claims}
    for word in groups:
        if not word:
            raise ConfigError(
                f"--only: needs the name of a group. Allowed: {', '.join(known)}.",
                code="claims-group-missing",
                key="--only",
                allowed=known,
            )
        if word not in known and word not in ids:
            raise unknown("--only", word, known)
    return [claim for claim in claims if not groups or claim.group in groups or claim.id in groups]
