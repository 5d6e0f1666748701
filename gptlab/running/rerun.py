"""Repeat one run from its record, and compare every number: is it still the same run?"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gptlab.declare.to_config import from_stored
from gptlab.errors import GptlabError
from gptlab.identity import identity
from gptlab.metrics import METRICS
from gptlab.running.execute import execute
from gptlab.store import files
from gptlab.store.config_file import read_config
from gptlab.store.csv_text import unguarded
from gptlab.store.damage import UNREADABLE, DamagedError
from gptlab.store.dependencies import code_changes
from gptlab.store.manifest import Manifest, read_manifest
from gptlab.store.result import Result
from gptlab.store.states import state_of


@dataclass(frozen=True)
class Repetition:
    """What came of it. `compared` counts numbers and texts, `differences` says where old and new are not the same bit
    for bit, `context` what else is different: code, versions, machine."""

    folder: Path
    state: str
    compared: int
    differences: tuple[str, ...]
    context: tuple[str, ...]


def rerun(run: Path, target: Path) -> Repetition:
    """Execute the config recorded in `run` again, in `target`. GptlabError when there is no such record."""
    state = state_of(run)
    if state.name not in ("finished", "diverged"):
        raise GptlabError(
            f"{run}: {state.name}, so there are no numbers to compare with. {state.reason}".rstrip(),
            code="rerun-not-finished",
            run=run,
            state=state.name,
        )
    try:
        config = replace(from_stored(read_config(run)), threads=state.result.threads)
    except DamagedError as damage:
        raise GptlabError(f"{run}: {damage}.", code="rerun-damaged", run=run) from damage
    context = [f"changed since: {text}" for text in code_changes(state.result.code, config.plugins)]
    if identity(config) != state.result.id:
        context.append("gptlab's schema has other keys or defaults now, so the same config has another id")
    old = _manifest(run)
    if old.mixed:
        context.append(f"the record is a mix: it went on with other {' and other '.join(old.mixed)}")
    result = execute(config, target)
    new = _manifest(target)
    context += [
        f"{key}: {old.text(key)} -> {new.text(key)}"
        for key in ("python", "platform", "cpu", "data_sha256")
        if key in old.document and old.text(key) != new.text(key)
    ]
    if old.kernels != new.kernels:
        context.append(f"kernels: {old.kernels or 'not recorded'} -> {new.kernels or 'not recorded'}")
    if result["state"] != state.name:
        differences = [f"state: {state.name} -> {result['state']}: {result['error']}"]
        return Repetition(target, result["state"], 1, tuple(differences), tuple(context))
    compared, differences = _metrics(_numbers(state.result), _numbers(state_of(target).result))
    for name in sorted({*_tables(run), *_tables(target)}):
        number, found = _table(run / name, target / name)
        compared, differences = compared + number, differences + found
    return Repetition(target, result["state"], compared, tuple(differences), tuple(context))


def _numbers(result: Result) -> dict[str, Any]:
    return {**result.metrics, **dict.fromkeys(result.not_finite)}


def _metrics(old: dict[str, Any], new: dict[str, Any]) -> tuple[int, list[str]]:
    names = [name for name in dict.fromkeys([*old, *new]) if not _is_timing(name)]
    return len(names), [
        f"{name}: {_change(old.get(name), new.get(name))}" for name in names if not _same(old.get(name), new.get(name))
    ]


def _is_timing(name: str) -> bool:
    declared = METRICS.get(name.split("/")[0])
    return declared is not None and declared.kind == "timing"


def _tables(folder: Path) -> list[str]:
    return [path.name for pattern in ("*.csv", "generation.json", "metrics.jsonl") for path in folder.glob(pattern)]


def _table(old: Path, new: Path) -> tuple[int, list[str]]:
    """Compare cell by cell, so that the message can say where."""
    for path, which in ((old, "the record"), (new, "the repetition")):
        if not path.exists():
            return 1, [f"{path.name}: missing in {which}"]
    one, other = _cells(old), _cells(new)
    wrong = [place for place in dict.fromkeys([*one, *other]) if not _same(one.get(place), other.get(place))]
    said = [f"{old.name}, {place}: {_change(one.get(place), other.get(place))}" for place in wrong[:3]]
    more = [f"{old.name}: {len(wrong) - 3} more"] if len(wrong) > 3 else []
    return len(one), said + more


def _cells(path: Path) -> dict[str, Any]:
    """Place in words -> value, for every cell of a table, without those that measure time."""
    try:
        if path.suffix == ".csv":
            table = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline=""))
            rows: list[dict[str, Any]] = [{k: unguarded(v or "") for k, v in row.items()} for row in table]
        elif path.suffix == ".jsonl":
            rows = files.read_jsonl(path)[0]
        else:
            rows = [files.read_json(path)]
    except UNREADABLE as error:
        raise GptlabError(f"{path}: cannot be read ({error}).", code="rerun-unreadable", path=path) from error
    cells = {}
    for number, row in enumerate(rows, start=1):
        for key, value in row.items():
            for name, item in value.items() if isinstance(value, dict) else [(key, value)]:
                if not _is_timing(name) and not _is_timing(row.get("metric", "")):
                    cells[f"row {number} {name}"] = item
    return cells


def _same(old: Any, new: Any) -> bool:
    return bool(old == new) or (
        isinstance(old, float) and isinstance(new, float) and math.isnan(old) and math.isnan(new)
    )


def _change(old: Any, new: Any) -> str:
    try:
        relative = abs(float(new) - float(old)) / max(abs(float(old)), 1e-300)
        return f"{old} -> {new} (relative difference {relative:.1e})"
    except (TypeError, ValueError):
        return f"{str(old)[:80]} -> {str(new)[:80]}"


def _manifest(folder: Path) -> Manifest:
    try:
        return read_manifest(folder)
    except DamagedError:
        return Manifest()
