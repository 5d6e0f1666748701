"""Two runs side by side: what differs in config, code, environment and data, and nothing that is the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptlab.comparing.variants import differences
from gptlab.config import flatten
from gptlab.errors import ConfigError
from gptlab.store.config_file import read_config
from gptlab.store.damage import DamagedError
from gptlab.store.manifest import read_manifest
from gptlab.store.states import state_of

Pairs = dict[str, tuple[Any, Any]]
# Which part of manifest.json belongs to which heading; all else there (times, folders, the command) differs anyway, or
# is said under another heading (the config, and the id that follows from it).
CODE = ("code", "git")
DATA = ("data_sha256",)
ELSEWHERE = (
    "config", "id", "start", "stop", "earlier_starts", "state", "error", "files", "command", "overrides", "seed", "rng",
    "pid",
)  # fmt: skip


def run_differences(one: Path, two: Path) -> dict[str, Pairs]:
    """Heading -> key -> (value in `one`, value in `two`). ConfigError when a folder is no run."""
    configs, manifests, results = zip(*(_read(folder) for folder in (one, two)), strict=True)
    headings: dict[str, Pairs] = {"code": {}, "environment": {}, "data": {}}
    for key, pair in differences(*manifests).items():
        top = key.split(".")[0]
        if key == "packages.gptlab" or top in CODE:
            headings["code"][key] = pair
        elif top not in ELSEWHERE:
            headings["data" if key in DATA else "environment"][key] = pair
    return {"config": differences(*configs), **headings, "outcome": differences(*results)}


def _read(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
    if not folder.is_dir():
        raise ConfigError(f"compare: there is no folder {str(folder)!r}.", code="diff-no-such-folder")
    try:
        manifest, config = _flat(read_manifest(folder).document), flatten(read_config(folder))
    except DamagedError as damage:
        raise ConfigError(f"compare: {folder} is not a run: {damage}.", code="diff-not-a-run", folder=folder) from None
    state = state_of(folder)
    result = state.result
    missing = dict.fromkeys(result.not_finite)
    outcome = {
        "state": result.state or state.reason, "outcome": result.outcome or None, "error": result.error or None,
        **result.metrics, **missing,
    }  # fmt: skip
    return config, manifest, outcome


def _flat(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted key -> value. A package is one key, and is under one: `packages` first, then `installed`."""
    flat = flatten(dict(manifest))
    found = {key: value for key, value in flat.items() if key not in ("installed", "code.torch")}
    for line in flat.get("installed") or ():
        name, _, version = str(line).partition("==")
        if f"packages.{name}" not in found:
            found[f"installed.{name}"] = version
    return found
