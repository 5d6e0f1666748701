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

import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from gptlab.store import locks
from gptlab.store.damage import DamagedError, load_object, reason
from gptlab.store.names import CRASH, HISTORY, MANIFEST, RESULT, RUN_NAME
from gptlab.store.result import RECORDED, Result, parse_result
from gptlab.tuned import Outcome

OVER = ("finished", "diverged")  # nothing more comes, and the numbers are those of the whole run
STATES = (*RECORDED, "planned", "running", "crashed", "damaged")
NEVER_ENDED = f"{RESULT} is missing: the run never came to its end"
_NOTHING = Result()


@dataclass(frozen=True)
class State:
    """`name` is one of STATES, `reason` says why in a sentence (empty where the name says it all).

    `result` is what result.json says; empty where there is none that can be read.
    """

    name: str
    reason: str = ""
    result: Result = _NOTHING


def state_of(folder: Path | str) -> State:
    """The state of the run in `folder`."""
    path = os.path.join(folder, RESULT)  # not through Path: that takes as long as reading, and there are thousands
    try:
        result = parse_result(load_object(path))
    except DamagedError:
        if not os.path.lexists(path):
            return _without_result(Path(folder))
        try:  # once more: a run that came to its end between the two looks has it now
            result = parse_result(load_object(path))
        except DamagedError as damage:
            return State("damaged", str(damage))
    # A run that goes on cuts its history to its last checkpoint first: only one that is over needs all of it.
    if result.state in OVER and (problem := _torn(folder, result.history_bytes)):
        return State("damaged", problem, result)
    return State(result.state, result.error, result)


def _torn(folder: Path | str, expected: int | None) -> str:
    """What is wrong with the history, as far as its size tells: to hash it takes too long for ten thousand runs."""
    if expected is None:
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


def altered(folder: Path, result: Result, largest: float = float("inf")) -> list[str]:
    """What is wrong with the files that the run wrote, one sentence each. Those above `largest` bytes need only be."""
    problems = []
    for name, expected in result.hashes.items():
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


def trial_of(folder: Path, metric: str) -> Outcome | None:
    """What came of a trial of a tuning in its folder; None where it has not ended."""
    state = state_of(folder)
    if state.name not in OVER:
        return None
    metrics = state.result.metrics
    diverged = state.name == "diverged" or state.result.outcome == "diverged"
    return Outcome(metrics.get(metric), diverged, metrics.get("initial_loss"), metrics.get("final_loss"))
