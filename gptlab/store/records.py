"""What a comparison needs of each run, and no more: its numbers, what it was, and where it ran.

All numbers are in result.json. The run's small tables are read to see that they are whole, of a long history only its
size is looked at, and no YAML is parsed: ten thousand runs take less than two seconds. Reading never writes, and a bad
file costs one run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from gptlab.config import Config
from gptlab.errors import ConfigError
from gptlab.identity import NOT_IDENTITY, defaults_of_new, identity_keys
from gptlab.store.config_file import parse_config, read_config
from gptlab.store.damage import DamagedError
from gptlab.store.json_text import json_text
from gptlab.store.manifest import Manifest, parse_manifest
from gptlab.store.names import CONFIG, GENERATION, HISTORY, LAYERS, MANIFEST
from gptlab.store.result import Result, Scored, is_finite
from gptlab.store.run_tables import checked
from gptlab.store.states import state_of
from gptlab.store.study_plan import PlanEntry

# A top-level entry of config.yaml that is no part of a variant, with the lines that belong to it.
_LEFT_OUT = re.compile(rf"^(?:{'|'.join(map(re.escape, (*NOT_IDENTITY, 'seed')))}):.*\n(?:[ -].*\n|\n)*", re.MULTILINE)


class Provenance(NamedTuple):
    """Where and on what a run ran. Empty: not recorded."""

    data: str = ""  # SHA-256
    code: str = ""  # version, commit, and the hash of what was not committed
    environment: str = ""  # Python and the packages that compute
    host: str = ""
    threads: str = ""
    seconds: str = ""  # the budget, where it is a time
    validation: str = ""  # SHA-256 of the rows that scored it on the way
    heldout: str = ""  # and at the end
    kernels: str = ""  # of its training


@dataclass(frozen=True)
class Record:
    """One planned run and what became of it. `variant`: hash of its config without the seed; empty if not to be had."""

    study: Path
    run: PlanEntry
    state: str
    outcome: str
    error: str
    metrics: Mapping[str, int | float]
    not_finite: tuple[str, ...]
    variant: str
    provenance: Provenance
    scored: Mapping[str, Scored] = field(default_factory=dict)  # validation, heldout
    started: str = ""  # at first
    budget: tuple[str, float] | None = None  # of its training: steps or tokens, and how many; None for other budgets

    @property
    def folder(self) -> Path:
        """Where the run is recorded."""
        return self.study / self.run.folder


def parsed_config(folder: Path) -> dict[str, Any]:
    """What makes the variant of a run: dotted key -> value, without the seed and what is no part of identity.

    {} where its config cannot be read.
    """
    try:
        return {**defaults_of_new(Config), **_variant_keys(read_config(folder))}
    except (DamagedError, ConfigError):
        return {}


def record_of(study: Path, run: PlanEntry, known: dict[Provenance, Provenance], histories: bool) -> Record:
    """What is known of one planned run. `known`: equal provenance is one object; `histories`: as in `load_sources`."""
    folder = os.path.join(study, run.folder)
    state = state_of(folder)
    name, error, variant, provenance, result = state.name, state.reason, "", Provenance(), state.result
    manifest = Manifest()
    if name != "planned":
        try:
            manifest = parse_manifest(checked(folder, MANIFEST, result.hashes) or b"{}")
            config = checked(folder, CONFIG, result.hashes) or b""
            variant, provenance = _variant(config, manifest), _provenance(manifest, result)
            if name == "finished":
                _tables(folder, result, histories)
        except DamagedError as damage:
            name, error = ("damaged", str(damage)) if name == "finished" else (name, error or str(damage))
    metrics = dict(result.metrics)
    if result.seconds is not None:
        metrics["seconds"] = result.seconds
    if name == "finished" and result.outcome == "diverged":
        name = "diverged"
    provenance = known.setdefault(provenance, provenance)
    return Record(
        study, run, name, result.outcome, error, metrics, result.not_finite, variant, provenance, result.scored,
        manifest.started, _budget(manifest),
    )  # fmt: skip


def _budget(manifest: Manifest) -> tuple[str, float] | None:
    train = manifest.config.get("train")
    if not isinstance(train, dict) or train.get("budget_unit") not in ("steps", "tokens"):
        return None
    return (str(train["budget_unit"]), budget) if is_finite(budget := train.get("budget")) else None


def _tables(folder: str, result: Result, histories: bool) -> None:
    """DamagedError where a table is not as the run wrote it: such a run is no evidence, whatever is asked of it.

    The size of the history has been compared already, by its state; `histories`: compare every byte of it.
    """
    for name in (LAYERS, GENERATION, HISTORY) if histories or not result.history_bytes else (LAYERS, GENERATION):
        if name in result.hashes:
            checked(folder, name, result.hashes)


def _variant(content: bytes, manifest: Manifest) -> str:
    """Hash of all that the seeds of a variant share. Runs of one variant have one config but for a few lines, so that
    almost all of ten thousand are told by these lines alone."""
    if not content:
        return ""
    text = _LEFT_OUT.sub("", content.decode("utf-8", errors="replace"))
    lines = sha256(text.encode("utf-8", errors="backslashreplace")).digest()
    if lines not in _variants:
        _variants[lines] = _variant_of(text, manifest.config)
    return _variants[lines]


_variants: dict[bytes, str] = {}  # hash of config.yaml without what is no part of a variant -> hash of the variant


def _variant_of(text: str, config: Mapping[str, Any]) -> str:
    try:
        # The same config twice; the manifest's is JSON and so read already.
        keys = json_text(sorted(_variant_keys(config or parse_config(text)).items()))
    except (DamagedError, ConfigError):
        keys = text
    return sha256(keys.encode("utf-8", errors="backslashreplace")).hexdigest()[:12]


def _variant_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in identity_keys(dict(config)).items() if key != "seed"}


def _provenance(manifest: Manifest, result: Result) -> Provenance:
    packages, git = manifest.packages, manifest.git
    train = manifest.config.get("train")
    train = train if isinstance(train, dict) else {}
    changes = f" with uncommitted changes {str(git['diff_sha256'])[:7]}" if git.get("diff_sha256") else ""
    python = manifest.text("python")
    computing = [("Python", python), *((name, packages.get(name, "")) for name in ("torch", "numpy"))]
    plugins = "".join(f", {name} {sha[:7]}" for name, sha in result.code.items() if name not in ("gptlab", "torch"))
    mixed = [f"other {key} in its first part" for key in manifest.mixed]
    return Provenance(
        data=", ".join([manifest.data, *(words for words in mixed if "data" in words)]),
        code=f"{packages.get('gptlab', '')} {str(git.get('commit') or '')[:10]}{changes}".strip()
        + ", ".join([plugins, *(words for words in mixed if "code" in words)]),
        environment=", ".join(f"{name} {version}" for name, version in computing if version),
        host=manifest.text("host"),
        threads=manifest.text("threads"),
        seconds=f"{train['budget']}" if train.get("budget_unit") == "seconds" and train.get("budget") else "",
        validation=result.scored["validation"].rows if "validation" in result.scored else "",
        heldout=result.scored["heldout"].rows if "heldout" in result.scored else "",
        kernels=manifest.kernels,
    )
