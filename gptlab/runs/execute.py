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
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from gptlab import registry
from gptlab.config import Config, identity
from gptlab.errors import GptlabError
from gptlab.runs import files
from gptlab.runs.provenance import now, provenance

if TYPE_CHECKING:
    from gptlab.probes import Measurement

RESULT_SCHEMA = 1


def execute(config: Config, folder: Path, *, overrides: Sequence[str] = (), resume: bool = False) -> dict[str, Any]:
    """Measure one variant, train it if it says so, and record everything in `folder`. Returns what `result.json` holds.

    `resume`: the folder belongs to this very run, which was interrupted; training goes on from its newest checkpoint.
    An error of the variant is recorded (state `failed`), not raised; KeyboardInterrupt is recorded and raised. OSError
    when the folder cannot be written.
    """
    start, clock = now(), time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    _clear(folder, results_only=resume)
    files.write_text(folder / "config.yaml", OmegaConf.to_yaml(_literal(dataclasses.asdict(config))))
    manifest = {
        **provenance(), "overrides": list(overrides), "seed": config.seed, "rng": config.rng, "start": start,
        "files": ["config.yaml", "manifest.json"],
    }  # fmt: skip
    files.write_json(folder / "manifest.json", manifest)

    result: dict[str, Any] = {
        "schema": RESULT_SCHEMA, "id": identity(config), "label": config.label, "seed": config.seed,
        "state": "finished", "outcome": None, "error": None, "traceback": None, "seconds": 0.0,
        "notes": [], "warnings": [], "metrics": {}, "artifacts": {},
    }  # fmt: skip
    interrupt: KeyboardInterrupt | None = None
    try:
        registry.load_plugins(config.plugins)
        manifest["data_sha256"] = _measure(config, folder, manifest, result, resume)
    except KeyboardInterrupt as error:
        interrupt, result["state"], result["error"] = error, "interrupted", "interrupted by the user"
    except Exception as error:
        result["state"] = "failed"
        result["error"] = str(error) if isinstance(error, GptlabError) else f"{type(error).__name__}: {error}"
        result["traceback"] = traceback.format_exc()
    result["seconds"] = time.perf_counter() - clock
    files.write_json(folder / "manifest.json", {**manifest, "stop": now(), "state": result["state"]})
    written = [folder / name for name in sorted(manifest["files"])]
    result["artifacts"] |= {path.name: sha256(path.read_bytes()).hexdigest() for path in written if path.exists()}
    files.write_json(folder / "result.json", result)
    if interrupt:
        raise interrupt
    return result


def _measure(
    config: Config, folder: Path, manifest: dict[str, Any], result: dict[str, Any], resume: bool
) -> str | None:
    """Run the probes, then the training, and return the hash of the data, if any was used."""
    from gptlab.probes import NEEDS_TOKENS, PROBES, Subject  # torch, only now
    from gptlab.training import train

    subject = Subject(config)
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, measure in PROBES.items():
        if getattr(config.probes, name) is None:
            continue
        if name in NEEDS_TOKENS and not subject.is_gpt:
            result["notes"].append(f"{name}: does not apply to architecture={config.model.architecture}")
            continue
        _record(measure(subject), folder, manifest, result, tables)
    if config.train.budget is not None:
        trained = train(subject, folder, resume=resume)
        manifest["files"] += trained.files
        _record(trained, folder, manifest, result, tables)
        result["outcome"], result["artifacts"] = trained.outcome, trained.artifacts
        if trained.outcome == "diverged":
            result["state"] = "diverged"
    return subject.source.hash if "source" in vars(subject) else None


def _record(
    found: Measurement, folder: Path, manifest: dict[str, Any], result: dict[str, Any], tables: dict[str, Any]
) -> None:
    """Write down what one measurement found. Rows for a table that is there already are added to it."""
    result["metrics"] |= found.metrics
    result["notes"] += found.notes
    result["warnings"] += found.warnings
    # Listed before they are written: if this run is killed, the next one here knows what to clear.
    names = [*(f"{stem}.csv" for stem in found.tables), *(f"{stem}.json" for stem in found.documents)]
    manifest["files"] += [name for name in names if name not in manifest["files"]]
    files.write_json(folder / "manifest.json", manifest)
    for stem, rows in found.tables.items():
        tables[stem] = [*tables.get(stem, []), *rows]
        files.write_text(folder / f"{stem}.csv", _csv(tables[stem]))
    for stem, document in found.documents.items():
        files.write_json(folder / f"{stem}.json", document)


def _clear(folder: Path, results_only: bool) -> None:
    """Take away what an earlier run wrote into this folder, finished or not, and nothing else.

    `results_only`: only result.json, so that it can be resumed.
    """
    try:
        old = [str(name) for name in files.read_json(folder / "manifest.json")["files"]]
    except (OSError, ValueError, KeyError, TypeError):
        old = []
    # result.json first: from here on the folder is not a finished run.
    for name in ["result.json", *([] if results_only else old)]:
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
