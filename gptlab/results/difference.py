"""Two runs side by side: what differs in config, code, environment and data, and nothing that is the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptlab.config import flatten
from gptlab.errors import ConfigError
from gptlab.results.reading import DamagedError
from gptlab.results.records import CONFIG, MANIFEST
from gptlab.results.variants import differences
from gptlab.runs.states import RESULT, load_object

Pairs = dict[str, tuple[Any, Any]]
# Which part of manifest.json belongs to which heading; all else there (times, folders, the command) differs anyway.
CODE = ("packages.gptlab", "git.commit", "git.dirty", "git.diff_sha256")
DATA = ("data_sha256",)
ELSEWHERE = ("start", "stop", "state", "files", "command", "overrides", "seed", "rng", "pid")


def run_differences(one: Path, two: Path) -> dict[str, Pairs]:
    """Heading -> key -> (value in `one`, value in `two`). ConfigError when a folder is no run."""
    configs, manifests, results = zip(*(_read(folder) for folder in (one, two)), strict=True)
    found = differences(*manifests)
    top = {key: key.split(".")[0] for key in found}
    return {
        "config": differences(*configs),
        "code": {key: pair for key, pair in found.items() if key in CODE},
        "environment": {
            key: pair for key, pair in found.items() if key not in (*CODE, *DATA) and top[key] not in ELSEWHERE
        },
        "data": {key: pair for key, pair in found.items() if key in DATA},
        "outcome": differences(*results),
    }


def _read(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
    if not folder.is_dir():
        raise ConfigError(f"compare: there is no folder {str(folder)!r}.")
    try:
        manifest = flatten(load_object(folder / MANIFEST))
    except DamagedError as damage:
        raise ConfigError(f"compare: {folder} is not a run: {damage}.") from None
    try:
        result = load_object(folder / RESULT)
    except DamagedError as damage:
        result = {"state": str(damage)}
    outcome = {"state": result.get("state"), "outcome": result.get("outcome"), **(result.get("metrics") or {})}
    return _config(folder), manifest, outcome


def _config(folder: Path) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    try:
        content = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))
        return flatten(content or {})
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError(f"compare: {folder / CONFIG} cannot be read ({type(error).__name__}).") from None
