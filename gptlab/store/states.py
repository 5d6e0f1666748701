"""What became of a run, derived from the files in its folder. Reads only, never raises for a bad file.

planned      no folder
running      no result.json, and a living process holds the lock
crashed      no result.json, and nobody holds it: killed, out of memory, a full disk, a power cut
finished     } what result.json says, which is written last; `diverged` is a training whose loss left
failed       } the finite numbers, `interrupted` one that was asked to stop
diverged     }
interrupted  }
damaged      a file cannot be read
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from gptlab.store import files, locks

SCHEMA = 1
RESULT, MANIFEST, CONFIG, CRASH = "result.json", "manifest.json", "config.yaml", "crash.json"
RECORDED = ("finished", "failed", "diverged", "interrupted")
OVER = ("finished", "diverged")  # nothing more comes, and the numbers are those of the whole run
STATES = (*RECORDED, "planned", "running", "crashed", "damaged")
RUN_NAME = re.compile(r".+-s(?P<seed>\d+)-(?P<id>[0-9a-f]{8,64})")
HISTORY = "metrics.jsonl"
NEVER_ENDED = f"{RESULT} is missing: the run never came to its end"


class DamagedError(Exception):
    """A file that cannot be used; the text names it."""


@dataclass(frozen=True)
class State:
    """`name` is one of STATES, `reason` says why in a sentence (empty where the name says it all)."""

    name: str
    reason: str = ""
    result: dict[str, Any] = field(default_factory=dict)  # result.json, where there is one that can be read


def state_of(folder: Path | str) -> State:
    """The state of the run in `folder`."""
    path = os.path.join(folder, RESULT)  # not through Path: that takes as long as reading, and there are thousands
    try:
        result = load_object(path)
    except DamagedError as damage:
        if not os.path.lexists(path):
            return _without_result(Path(folder))
        return State("damaged", str(damage))
    name = result.get("state")
    if name not in RECORDED:
        return State("damaged", f"{RESULT}: state {name!r} not understood")
    if not isinstance(result.get("metrics") or {}, dict):
        return State("damaged", f"{RESULT}: metrics not understood")
    # A run that goes on cuts its history to its last checkpoint first: only one that is over needs all of it.
    if name in OVER and (problem := _torn(folder, result.get("history_bytes"))):
        return State("damaged", problem, result)
    return State(str(name), str(result.get("error") or ""), result)


def _torn(folder: Path | str, expected: Any) -> str:
    """What is wrong with the history, as far as its size tells: to hash it takes too long for ten thousand runs."""
    if not isinstance(expected, int):
        return ""
    try:
        found = os.stat(os.path.join(folder, HISTORY)).st_size
    except OSError as error:
        return f"{HISTORY}: {reason(error)}"
    return "" if found == expected else f"{HISTORY}: has {found:,} bytes, and the run wrote {expected:,}"


def _without_result(folder: Path) -> State:
    if not os.path.isdir(folder):
        return State("planned")
    holder = locks.holder(folder)
    if holder:
        return State("running", str(holder))
    if os.path.lexists(folder / RESULT):  # it came to its end between two looks
        return state_of(folder)
    try:
        return State("crashed", str(load_object(folder / CRASH)["error"]))
    except (DamagedError, KeyError):
        return State("crashed", NEVER_ENDED)


def load_object(path: Path | str) -> dict[str, Any]:
    """The JSON object in `path`. DamagedError when there is none or when it is of a newer schema."""
    name = os.path.basename(path)
    try:
        content = files.read_json(path)
    except FileNotFoundError:
        raise DamagedError(f"{name} is missing") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedError(f"{name}: {reason(error)}") from error
    if not isinstance(content, dict):
        raise DamagedError(f"{name}: not a JSON object")
    schema = content.get("schema", SCHEMA)
    if isinstance(schema, int) and schema > SCHEMA:
        raise DamagedError(f"{name}: schema {schema}, written by a newer gptlab; this one reads up to {SCHEMA}")
    return content


def reason(error: BaseException) -> str:
    """Why a file could not be read, in a few words."""
    if isinstance(error, json.JSONDecodeError):
        return f"not valid JSON (line {error.lineno}: {error.msg})"
    if isinstance(error, UnicodeDecodeError):
        return "not text in UTF-8"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (str(error) or type(error).__name__).splitlines()[0]


def altered(folder: Path, result: dict[str, Any], largest: float = float("inf")) -> list[str]:
    """What is wrong with the files that the run wrote, one sentence each. Those above `largest` bytes need only be."""
    hashes = result.get("artifacts")
    problems = []
    for name, expected in (hashes if isinstance(hashes, dict) else {}).items():
        path = folder / name
        try:
            if path.stat().st_size <= largest and digest(path) != expected:
                problems.append(f"{name}: not as the run wrote it (its SHA-256 differs from {RESULT})")
        except FileNotFoundError:
            problems.append(f"{name} is missing")
        except OSError as error:
            problems.append(f"{name}: {reason(error)}")
    return problems


def digest(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    total = sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            total.update(block)
    return total.hexdigest()


def run_folders(study: Path) -> dict[str, list[str]]:
    """First eight digits of the id -> names of the folders in `study` that end with them."""
    found: dict[str, list[str]] = {}
    try:
        with os.scandir(study) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError:
        return found
    for name in names:
        match = RUN_NAME.fullmatch(name)
        if match:
            found.setdefault(match["id"][:8], []).append(name)
    return found


def folder_of(study: Path, run_id: str, wanted: str, known: dict[str, list[str]] | None = None) -> str:
    """The name of the folder of this run: the one that has it already, whatever its label was then, or else `wanted`.

    Where another run has the first eight digits of the id as well, more of them are used. `known`: `run_folders`.
    """
    names = (run_folders(study) if known is None else known).get(run_id[:8], [])
    own = [name for name in names if _id_in(study / name) in ("", run_id)]
    if wanted in own:
        return wanted
    if own:
        return own[0]
    return wanted if wanted not in names else f"{wanted.removesuffix(run_id[:8])}{run_id[:16]}"


def _id_in(folder: Path) -> str:
    """The id that a run folder states, in either of two files; empty when neither can tell."""
    for name in (RESULT, MANIFEST):
        try:
            stated = load_object(folder / name).get("id")
        except DamagedError:
            continue
        if isinstance(stated, str):
            return stated
    return ""
