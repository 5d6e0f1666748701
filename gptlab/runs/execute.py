"""One run: a checked config and a folder in, measurements and `result.json` out.

The folder says early what it is (config.yaml, manifest.json) and `result.json` comes last, so a folder without one
never passes for a finished run.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import re
import time
import traceback
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gptlab import registry
from gptlab.config import Config, identity
from gptlab.errors import GptlabError
from gptlab.runs import files
from gptlab.runs.provenance import now, provenance

RESULT_SCHEMA = 1


def execute(config: Config, folder: Path, *, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Measure one variant and record everything in `folder`. Returns what `result.json` holds.

    An error of the variant is recorded (state `failed`), not raised; KeyboardInterrupt is recorded and raised. OSError
    when the folder cannot be written.
    """
    start, clock = now(), time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    _clear(folder)
    files.write_text(folder / "config.yaml", OmegaConf.to_yaml(_literal(dataclasses.asdict(config))))
    manifest = {
        **provenance(), "overrides": list(overrides), "seed": config.seed, "rng": config.rng, "start": start,
        "files": ["config.yaml", "manifest.json"],
    }  # fmt: skip
    files.write_json(folder / "manifest.json", manifest)

    result: dict[str, Any] = {
        "schema": RESULT_SCHEMA, "id": identity(config), "label": config.label, "seed": config.seed,
        "state": "finished", "error": None, "traceback": None, "seconds": 0.0,
        "notes": [], "warnings": [], "metrics": {}, "artifacts": {},
    }  # fmt: skip
    interrupt: KeyboardInterrupt | None = None
    try:
        registry.load_plugins(config.plugins)
        manifest["data_sha256"] = _measure(config, folder, manifest, result)
    except KeyboardInterrupt as error:
        interrupt, result["state"], result["error"] = error, "interrupted", "interrupted by the user"
    except Exception as error:
        result["state"] = "failed"
        result["error"] = str(error) if isinstance(error, GptlabError) else f"{type(error).__name__}: {error}"
        result["traceback"] = traceback.format_exc()
    result["seconds"] = time.perf_counter() - clock
    files.write_json(folder / "manifest.json", {**manifest, "stop": now(), "state": result["state"]})
    written = [folder / name for name in sorted(manifest["files"])]
    result["artifacts"] = {path.name: sha256(path.read_bytes()).hexdigest() for path in written if path.exists()}
    files.write_json(folder / "result.json", result)
    if interrupt:
        raise interrupt
    return result


def _measure(config: Config, folder: Path, manifest: dict[str, Any], result: dict[str, Any]) -> str | None:
    """Run the probes, write what they found as it comes, and return the hash of the data, if any was used."""
    from gptlab.probes import NEEDS_TOKENS, PROBES, Subject  # torch, only now

    subject = Subject(config)
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, measure in PROBES.items():
        if getattr(config.probes, name) is None:
            continue
        if name in NEEDS_TOKENS and not subject.is_gpt:
            result["notes"].append(f"{name}: does not apply to architecture={config.model.architecture}")
            continue
        found = measure(subject)
        result["metrics"] |= found.metrics
        result["notes"] += found.notes
        result["warnings"] += found.warnings
        # Listed before they are written: if this run is killed, the next one here knows what to clear.
        new = [f"{stem}.csv" for stem in found.tables if stem not in tables]
        manifest["files"] += [*new, *(f"{stem}.json" for stem in found.documents)]
        files.write_json(folder / "manifest.json", manifest)
        for stem, rows in found.tables.items():  # several probes may add rows to one table
            tables[stem] = tables.get(stem, []) + rows
            files.write_text(folder / f"{stem}.csv", _csv(tables[stem]))
        for stem, document in found.documents.items():
            files.write_json(folder / f"{stem}.json", document)
    return subject.source.hash if "source" in vars(subject) else None


def _clear(folder: Path) -> None:
    """Take away what an earlier run wrote into this folder, finished or not, and nothing else."""
    try:
        old = [str(name) for name in files.read_json(folder / "manifest.json")["files"]]
    except (OSError, ValueError, KeyError, TypeError):
        old = []
    for name in ["result.json", *old]:  # result.json first: from here on the folder is not a finished run
        (folder / Path(name).name).unlink(missing_ok=True)


def _literal(value: Any) -> Any:
    """`value` with every `${` escaped: the config is resolved, and text that holds one has to come back as it was."""
    if isinstance(value, dict):
        return {key: _literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", value) if isinstance(value, str) else value


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
