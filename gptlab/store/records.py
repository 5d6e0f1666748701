"""What a comparison needs of each run, and no more: its numbers, what it was, and where it ran.

All numbers are in result.json. The run's small tables are read to see that they are whole, of a long history only its
size is looked at, and no YAML is parsed: ten thousand runs take less than two seconds. Reading never writes, and a bad
file costs one run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from gptlab.config import NOT_IDENTITY, flatten
from gptlab.errors import ConfigError
from gptlab.store.artifacts import GENERATION, LAYERS, STEPS
from gptlab.store.plan_history import whole_plan
from gptlab.store.read import PLAN, DamagedError, Outcome, Plan, PlannedRun, load_outcome, load_plan
from gptlab.store.states import RESULT, load_object

CONFIG, MANIFEST = "config.yaml", "manifest.json"
# A top-level entry of config.yaml that is no part of a variant, with the lines that belong to it.
_LEFT_OUT = re.compile(rf"^(?:{'|'.join(map(re.escape, (*NOT_IDENTITY, 'seed')))}):.*\n(?:[ -].*\n|\n)*", re.MULTILINE)


class Facts(NamedTuple):
    """Where and on what a run ran. Empty: not recorded."""

    data: str = ""  # SHA-256
    code: str = ""  # version, commit, and the hash of what was not committed
    environment: str = ""  # Python and the packages that compute
    host: str = ""
    threads: str = ""
    seconds: str = ""  # the budget, where it is a time


@dataclass(frozen=True)
class Record:
    """One planned run and what became of it. `variant`: hash of its config without the seed; empty if not to be had."""

    study: Path
    run: PlannedRun
    state: str
    outcome: str
    error: str
    metrics: dict[str, int | float]
    not_finite: tuple[str, ...]
    variant: str
    facts: Facts

    @property
    def folder(self) -> Path:
        """Where the run is recorded."""
        return self.study / self.run.folder


@dataclass(frozen=True)
class Source:
    """One study, or those of its runs that were named."""

    folder: Path
    plan: Plan
    records: tuple[Record, ...]


def load_sources(paths: Sequence[Path | str], histories: bool = False) -> list[Source]:
    """Read the studies and run folders in `paths`. ConfigError for a path that is neither, or that is named twice.

    `histories`: metrics.jsonl is going to be read too, so it is checked to the byte.
    """
    studies: dict[Path, list[PlannedRun] | None] = {}  # None: all of its runs
    seen: dict[str, Path] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            raise ConfigError(f"compare: there is no folder {str(path)!r}.")
        if seen.setdefault(os.path.realpath(path), path) is not path:
            raise ConfigError(f"compare: {path} is named twice.")
        if _is_run(path):
            folder = Path(os.path.dirname(os.path.abspath(path))) if path.name in ("", "..") else path.parent
            chosen = studies.setdefault(folder, [])
            if chosen is None:
                raise ConfigError(f"compare: {path} is named twice, alone and as a part of {folder}.")
            chosen.append(_planned(path))
        elif studies.setdefault(path, None) is not None:
            raise ConfigError(f"compare: {path} is named twice, as a whole and by some of its runs.")
    return [_load(folder, chosen, histories) for folder, chosen in studies.items()]


def parsed_config(folder: Path) -> dict[str, Any]:
    """config.yaml of a run as dotted key -> value, without the seed and what is no part of identity; {} without one."""
    import yaml  # type: ignore[import-untyped]

    try:
        text = (folder / CONFIG).read_text(encoding="utf-8")
        content = yaml.load(_LEFT_OUT.sub("", text), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return {key: value for key, value in flatten(content or {}).items() if value != {}}


def _is_run(path: Path) -> bool:
    return not os.path.lexists(path / PLAN) and any(os.path.lexists(path / name) for name in (RESULT, MANIFEST))


def _planned(path: Path) -> PlannedRun:
    """The run's entry in its study's plan; made from the run itself where it has no study."""
    if os.path.lexists(path.parent / PLAN):
        for run in load_plan(path.parent).runs:
            if run.folder == path.name:
                return run
    try:
        result = load_object(path / RESULT)
        return PlannedRun(str(result["id"]), str(result["label"] or path.name), int(result["seed"]), path.name)
    except (DamagedError, KeyError, TypeError, ValueError):
        return PlannedRun("", path.name, 0, path.name)


def _load(folder: Path, chosen: Iterable[PlannedRun] | None, histories: bool) -> Source:
    if chosen is None:
        plan, _ = whole_plan(folder)
    elif os.path.lexists(folder / PLAN):
        plan = replace(load_plan(folder), runs=tuple(chosen))
    else:
        plan = Plan(folder.name, "", (), "", "", tuple(chosen))
    known: dict[Facts, Facts] = {}
    return Source(folder, plan, tuple(_record(folder, run, known, histories) for run in plan.runs))


def _record(study: Path, run: PlannedRun, known: dict[Facts, Facts], histories: bool) -> Record:
    folder = os.path.join(study, run.folder)
    outcome = load_outcome(folder)
    state, error, variant, facts = outcome.state, outcome.error, "", Facts()
    metrics = dict(outcome.metrics)
    if state != "planned":
        try:
            variant = _variant(_checked(folder, CONFIG, outcome.hashes))
            facts = _facts(_checked(folder, MANIFEST, outcome.hashes))
            if state == "finished":
                _tables(folder, outcome, histories)
        except DamagedError as damage:
            state, error = ("damaged", str(damage)) if state == "finished" else (state, error or str(damage))
    if outcome.seconds is not None:
        metrics["seconds"] = outcome.seconds
    if state == "finished" and outcome.outcome == "diverged":
        state = "diverged"
    facts = known.setdefault(facts, facts)
    return Record(study, run, state, outcome.outcome, error, metrics, outcome.not_finite, variant, facts)


def _tables(folder: str, outcome: Outcome, histories: bool) -> None:
    """DamagedError where a table is not as the run wrote it: such a run is no evidence, whatever is asked of it.

    The size of the history has been compared already, by its state; `histories`: compare every byte of it.
    """
    for name in (LAYERS, GENERATION, STEPS) if histories or not outcome.history_bytes else (LAYERS, GENERATION):
        if name in outcome.hashes:
            _checked(folder, name, outcome.hashes)


def _checked(folder: str, name: str, hashes: dict[str, str]) -> bytes:
    """The file's content, as the run wrote it; empty when it is not there and was not listed."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            content = file.read()
    except FileNotFoundError:
        if name in hashes:
            raise DamagedError(f"{name} is missing") from None
        return b""
    except OSError as error:
        raise DamagedError(f"{name}: {error.strerror or error}") from error
    if name in hashes and sha256(content).hexdigest() != hashes[name]:
        raise DamagedError(f"{name}: not as the run wrote it (its SHA-256 differs from result.json)")
    return content


def _variant(content: bytes) -> str:
    if not content:
        return ""
    text = content.decode("utf-8", errors="replace")
    return sha256(_LEFT_OUT.sub("", text).encode()).hexdigest()[:12]


def _facts(content: bytes) -> Facts:
    if not content:
        return Facts()
    try:
        manifest = json.loads(content)
        packages = dict(manifest.get("packages") or {})
        git = manifest.get("git") or {}
        train = (manifest.get("config") or {}).get("train") or {}
        changes = f" with uncommitted changes {str(git['diff_sha256'])[:7]}" if git.get("diff_sha256") else ""
        code = f"{packages.pop('gptlab', None) or ''} {str(git.get('commit') or '')[:10]}{changes}".strip()
        compute = {name: packages[name] for name in ("torch", "numpy") if packages.get(name)}
        environment = {**({"Python": manifest["python"]} if manifest.get("python") else {}), **compute}
        return Facts(
            data=str(manifest.get("data_sha256") or ""),
            code=code,
            environment=", ".join(f"{name} {version}" for name, version in environment.items()),
            host=str(manifest.get("host") or ""),
            threads=str(manifest.get("threads") or ""),
            seconds=f"{train['budget']}" if train.get("budget_unit") == "seconds" and train.get("budget") else "",
        )
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise DamagedError(f"{MANIFEST}: not as it should be ({type(error).__name__})") from error
