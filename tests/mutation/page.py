"""The page of results: by room the share of mutants that the fast tests caught, and what they did not catch."""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.mutation.recorded import ROOT

PAGE = ROOT / "docs" / "mutation.md"
EQUAL = Path(__file__).with_name("equal.csv")
Line = dict[str, Any]


def read(path: Path) -> list[Line]:
    """The results so far, one of a mutant each: the last that was written."""
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return list({key(line): line for line in lines}.values())


def key(line: Line) -> tuple[str, ...]:
    """What a mutant is called while the lines around it move."""
    return tuple(str(line[name]) for name in ("file", "function", "line", "operator", "before", "after"))


def equal() -> dict[tuple[str, ...], str]:
    """The mutants that compute the same as the original, with the reason."""
    with EQUAL.open(encoding="utf-8", newline="") as stream:
        return {
            (row["file"], row["function"], row["before"], row["after"]): row["reason"] for row in csv.DictReader(stream)
        }


def wilson(caught: int, of: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    share, spread = caught / of, z * z / of
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / of + spread / (4 * of)) / (1 + spread)
    return middle - half, middle + half


def write(results: Path) -> None:
    """docs/mutation.md anew: the table between its two marks, and the survivors."""
    reasons = equal()
    by_room: dict[str, list[Line]] = defaultdict(list)
    for line in read(results):
        by_room[line["room"]].append(line)
    table = [
        "| room | mutants | equal | caught at first | share | 95 % interval | caught since | left |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lists: list[str] = []
    for room, lines in sorted(by_room.items()):
        left = [line for line in lines if not line["killed_by"]]
        same = [line for line in left if _place(line) in reasons]
        survived = [line for line in left if _place(line) not in reasons]
        since = [line for line in survived if line.get("later")]
        of = len(lines) - len(same)
        caught = len(lines) - len(left)
        low, high = wilson(caught, of)
        share = (f"{caught / of:.0%}", f"{low:.0%} to {high:.0%}")
        cells = (room, len(lines), len(same), caught, *share, len(since), len(survived) - len(since))
        table.append("| " + " | ".join(str(cell) for cell in cells) + " |")
        lists += [f"\n### {room}\n", *(_item(line, None) for line in sorted(survived, key=key))]
        lists += [_item(line, reasons[_place(line)]) for line in sorted(same, key=key)]
    text = PAGE.read_text(encoding="utf-8")
    text = _between(text, "table", "\n".join(table))
    PAGE.write_text(_between(text, "survivors", "\n".join(lists).strip()), encoding="utf-8")


def _place(line: Line) -> tuple[str, ...]:
    return line["file"], line["function"], line["before"], line["after"]


def _item(line: Line, reason: str | None) -> str:
    why = f"equal: {reason}" if reason else "survived" if line["tests"] else "survived: no fast test ran it"
    if line.get("later"):
        why += f"; now caught by `{line['later'].partition('::')[0]}`"
    return f"- `{line['file']}:{line['line']}` `{line['before']}` -> `{line['after']}`: {why}"


def _between(text: str, name: str, inner: str) -> str:
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    head, rest = text.split(begin)
    return f"{head}{begin}\n{inner}\n{end}{rest.split(end)[1]}"
