"""Whether what is on disk is what the runs wrote: every hash, every id, every line of a history. Reads only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gptlab.errors import GptlabError
from gptlab.identity import has_identity
from gptlab.store import files
from gptlab.store.atomic import is_temporary
from gptlab.store.config_file import read_config
from gptlab.store.damage import UNREADABLE, DamagedError, load_object
from gptlab.store.find_runs import find_runs
from gptlab.store.manifest import read_manifest
from gptlab.store.names import HISTORY, MANIFEST, RESULT
from gptlab.store.result import RECORDED
from gptlab.store.states import altered, state_of


@dataclass(frozen=True)
class Verdict:
    """What was found in one run folder. `checked` counts the files whose hash was compared."""

    folder: Path
    state: str
    checked: int
    problems: tuple[str, ...]


def verify(folder: Path) -> Iterator[Verdict]:
    """One verdict for each run at and below `folder`."""
    for run in find_runs(folder):
        yield verify_run(run)


def verify_run(folder: Path) -> Verdict:
    """Check one run. A run without result.json has promised nothing, so only what is there must be readable."""
    state = state_of(folder)
    if state.name == "damaged":
        return Verdict(folder, state.name, 0, (state.reason,))
    problems = altered(folder, state.result)
    problems += _unreadable(folder, seen=" ".join(problems))
    if state.name in RECORDED:
        problems += _wrong_id(folder, state.result.id)
    return Verdict(folder, state.name, len(state.result.hashes), tuple(problems))


def _unreadable(folder: Path, seen: str) -> list[str]:
    problems = []
    for path in sorted(folder.glob("*.json")):
        if path.name in seen or path.name == RESULT or is_temporary(path.name):
            continue
        try:
            load_object(path)
        except DamagedError as damage:
            problems.append(str(damage))
    if (folder / HISTORY).exists():
        try:
            torn = files.read_jsonl(folder / HISTORY)[1]
            problems += [torn] if torn else []
        except UNREADABLE as error:
            problems.append(str(error))
    return problems


def _wrong_id(folder: Path, recorded: str) -> list[str]:
    """config.yaml and manifest.json must be of the run that result.json is of."""
    problems = []
    try:
        if not has_identity(read_config(folder), recorded):
            problems.append(f"config.yaml: is not the config of {recorded[:8]}")
    except GptlabError as error:
        problems.append(str(error))
    try:
        stated = read_manifest(folder).id or recorded
        problems += [f"{MANIFEST}: belongs to another run, {stated}"] if stated != recorded else []
    except DamagedError:
        pass  # said already
    return problems
