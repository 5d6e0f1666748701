"""manifest.json in types: with what and where a run was made, known before it ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gptlab.kernels import PLAIN, words
from gptlab.store.damage import DamagedError, load_object, parsing
from gptlab.store.json_text import parse_json
from gptlab.store.names import MANIFEST


@dataclass(frozen=True)
class Manifest:
    """What a run said of itself when it started. `document`: all of it, as plain JSON.

    `stretches`: what held for each part of a run that was interrupted, the one that is going on or ended last at the
    end; older manifests have none.
    """

    id: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""  # SHA-256
    packages: Mapping[str, str] = field(default_factory=dict)
    git: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    stretches: tuple[Mapping[str, Any], ...] = ()
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mixed(self) -> tuple[str, ...]:
        """What was not the same in all stretches: `code`, `data`, or both."""
        return tuple(key for key in ("code", "data") if len({_what(stretch, key) for stretch in self.stretches}) > 1)

    @property
    def started(self) -> str:
        """When the run began, at first; empty where that is not on record."""
        earlier = self.document.get("earlier_starts")
        return str((earlier[0] if isinstance(earlier, list) and earlier else self.document.get("start")) or "")

    @property
    def kernels(self) -> str:
        """How its training was computed (`gptlab.kernels`), in words; empty where none was, or it is not recorded."""
        train = self.config.get("train")
        taken = train.get("kernels") if isinstance(train, dict) else None
        return words({**PLAIN, **taken}) if isinstance(taken, dict) else ""  # a place that it did not know yet: plain

    def text(self, key: str) -> str:
        """What stands under `key` at the top, in words; empty where nothing does."""
        value = self.document.get(key)
        return "" if value is None else str(value)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the run in `folder`. DamagedError when it cannot be had."""
    return _parsed(load_object(folder / MANIFEST))


def parse_manifest(content: bytes) -> Manifest:
    """As `read_manifest`, from what the file holds."""
    with parsing(MANIFEST):
        found = parse_json(content.decode("utf-8"))
    if not isinstance(found, dict):
        raise DamagedError(f"{MANIFEST}: not a JSON object")
    return _parsed(found)


def _parsed(found: dict[str, Any]) -> Manifest:
    config, packages, git = (_object(found, key) for key in ("config", "packages", "git"))
    files, stretches = (_list(found, key) for key in ("files", "stretches"))
    return Manifest(
        id=str(found.get("id") or ""),
        config=config,
        data=str(found.get("data_sha256") or ""),
        packages={str(name): str(version) for name, version in packages.items() if version},
        git=git,
        files=tuple(map(str, files)),
        stretches=tuple(stretch for stretch in stretches if isinstance(stretch, dict)),
        document=found,
    )


def _what(stretch: Mapping[str, Any], key: str) -> str:
    value = stretch.get(key)
    # Of the data its content alone: a file that was touched is the same file.
    return json.dumps(value.get("sha256") if key == "data" and isinstance(value, dict) else value, sort_keys=True)


def _object(found: dict[str, Any], key: str) -> dict[str, Any]:
    value = found.get(key) or {}
    if not isinstance(value, dict):
        raise DamagedError(f"{MANIFEST}: {key} is no object")
    return value


def _list(found: dict[str, Any], key: str) -> list[Any]:
    value = found.get(key) or []
    if not isinstance(value, list):
        raise DamagedError(f"{MANIFEST}: {key} is no list")
    return value
