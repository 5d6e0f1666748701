"""The tables inside one run folder, checked while they are read.

`result.json` lists the SHA-256 of every file that the run wrote, so a file that is lost or altered is noticed. A file
that is not listed was never written (its probe was off) and is read if it is there.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gptlab.store.csv_text import unguarded
from gptlab.store.damage import UNREADABLE, DamagedError, parsing, reason
from gptlab.store.json_text import parse_json
from gptlab.store.names import GENERATION, HELDOUT, HISTORY, LAYERS, RESULT, SAMPLES
from gptlab.store.result import LARGEST

Rows = Sequence[dict[str, Any]]
Heldout = Mapping[int, tuple[float, float]]  # document -> its share of the targets, its loss
WHOLE_LAYER = "all"  # the part that stands for a layer as a whole


@dataclass(frozen=True)
class Generation:
    """A continuation: the texts, and one row per new token."""

    prompt: str = ""
    text: str = ""
    new_text: str = ""
    rows: Rows = ()


def read_layers(folder: Path, hashes: Mapping[str, str]) -> Rows:
    """Rows of step, layer (None outside the blocks), part, metric, value. DamagedError names the file and line."""
    content = _text_of(folder, LAYERS, hashes)
    types: dict[str, Callable[[str], Any]] = {
        "step": int,
        "layer": _layer,
        "part": unguarded,
        "metric": unguarded,
        "value": _number,
    }
    rows: list[dict[str, Any]] = []
    if content is None:
        return rows
    reader = csv.DictReader(io.StringIO(content, newline=""))
    try:
        missing = types.keys() - set(reader.fieldnames or ())
        if content and missing:
            raise DamagedError(f"{LAYERS}: no column {', '.join(sorted(missing))}")
        for line in reader:
            if None in line.values():
                raise ValueError("the row ends too early")
            rows.append({name: convert(line[name]) for name, convert in types.items()})
    except (ValueError, OverflowError, csv.Error) as error:
        raise DamagedError(f"{LAYERS}: line {reader.line_num} cannot be read") from error
    return rows


def read_generation(folder: Path, hashes: Mapping[str, str]) -> Generation:
    """The text that the run generated last, with its tokens; empty when there is none. DamagedError names the file."""
    name = SAMPLES if SAMPLES in hashes else GENERATION
    content = _text_of(folder, name, hashes)
    if content is None:
        return Generation()
    with parsing(name):
        found = parse_json(content)
        if name == SAMPLES:
            found = found["samples"][-1]
        step = int(found.get("step", 0))
        ids, tokens, margins = found["token_ids"], found["tokens"], found["margins"]
        rows = [
            {"step": step, "position": place, "token_id": int(id_), "token": str(token), "margin": _number(margin)}
            for place, (id_, token, margin) in enumerate(zip(ids, tokens, margins, strict=True))
        ]
        return Generation(str(found["prompt"]), str(found["text"]), str(found["new_text"]), rows)


def read_heldout(folder: Path, hashes: Mapping[str, str] = MappingProxyType({})) -> Heldout | None:
    """The loss of each held-out document; None where the run wrote none. DamagedError names the file."""
    content = _text_of(folder, HELDOUT, hashes)
    if content is None:
        return None
    with parsing(HELDOUT):
        rows = csv.DictReader(io.StringIO(content, newline=""))
        return {int(row["document"]): (float(row["share"]), float(row["loss"])) for row in rows}


def read_steps(folder: Path, hashes: Mapping[str, str]) -> Rows:
    """Rows of step, tokens, flops, seconds, metric, value. A torn last line is what a kill leaves, and is passed over.

    A step that was recorded twice (a resumed run repeats what it had lost) counts with its last record. DamagedError
    names the line.
    """
    content = _text_of(folder, HISTORY, hashes)
    lines = (content or "").split("\n")
    whole = lines[:-1]  # the last one is empty, or torn
    steps: dict[int, list[dict[str, Any]]] = {}
    for number, line in enumerate(whole, 1):
        try:
            entry = parse_json(line)
            where = {name: _number(entry.get(name)) for name in ("tokens", "flops", "seconds")}
            steps[int(entry["step"])] = [
                {"step": int(entry["step"]), **where, "metric": str(name), "value": _number(value)}
                for name, value in entry["metrics"].items()
            ]
        except UNREADABLE as error:
            raise DamagedError(f"{HISTORY}: line {number} cannot be read") from error
    return [row for step in sorted(steps) for row in steps[step]]


def checked(folder: Path | str, name: str, hashes: Mapping[str, str]) -> bytes | None:
    """What the file holds, as the run wrote it; None when it is not there and was not listed.

    DamagedError when it is lost or not as the run wrote it.
    """
    try:
        with open(os.path.join(folder, name), "rb") as file:
            content = file.read()
    except FileNotFoundError:
        if name in hashes:
            raise DamagedError(f"{name} is missing") from None
        return None
    except OSError as error:
        raise DamagedError(f"{name}: {reason(error)}") from error
    if name in hashes and sha256(content).hexdigest() != hashes[name]:
        raise DamagedError(f"{name}: not as the run wrote it (its SHA-256 differs from {RESULT})")
    return content


def _text_of(folder: Path, name: str, hashes: Mapping[str, str]) -> str | None:
    content = checked(folder, name, hashes)
    with parsing(name):
        return None if content is None else content.decode("utf-8")


def _layer(cell: str) -> int | None:
    return int(cell) if cell.strip() else None


def _number(cell: Any) -> float:
    """A number; null and nothing stand for what was not finite, infinity for what is beyond all computing."""
    number = float(cell) if cell is not None and cell != "" else math.nan
    return number if math.isnan(number) or abs(number) <= LARGEST else math.copysign(math.inf, number)
