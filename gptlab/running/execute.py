"""One run: a checked config and a folder in, measurements and `result.json` out.

The folder says early what it is (config.yaml, manifest.json) and `result.json` comes last, so a folder without one
never passes for a finished run.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import os
import re
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from gptlab import registry
from gptlab.config import Config, identity, stored
from gptlab.errors import GptlabError
from gptlab.running import provenance
from gptlab.store import files, locks
from gptlab.store.clock import now
from gptlab.store.code import code
from gptlab.store.states import CONFIG, CRASH, HISTORY, MANIFEST, RESULT, digest

if TYPE_CHECKING:
    from gptlab.probes import Measurement

RESULT_SCHEMA = 1
PATCH = "code.patch"
TRAINING = (HISTORY, "checkpoints/")  # what a training goes on from, if it is to be resumed


def execute(config: Config, folder: Path, *, overrides: Sequence[str] = (), resume: bool = False) -> dict[str, Any]:
    """Measure one variant, train it if it says so, and record all of it in `folder`. Returns what result.json holds.

    `resume`: the folder belongs to this very id, and what is there is kept for the run to go on from. An error of the
    variant is recorded (state `failed`), not raised; KeyboardInterrupt is recorded and raised. locks.BusyError when
    another process is writing there, OSError when the folder cannot be written.
    """
    with locks.claim(folder.parent, lambda: folder):
        return execute_claimed(config, folder, overrides=overrides, resume=resume)


def execute_claimed(
    config: Config, folder: Path, *, overrides: Sequence[str] = (), resume: bool = False
) -> dict[str, Any]:
    """As `execute`, in a folder that the caller has claimed."""
    import gptlab.probes
    import gptlab.training  # noqa: F401 - torch, only now: loading it is not the first run's work

    start, clock = now(), time.perf_counter()
    old = _old_manifest(folder)
    _clear(folder, [] if resume else [*old.get("files", []), *TRAINING])
    manifest = _manifest(config, overrides, start, old if resume else {})
    files.write_text(folder / CONFIG, OmegaConf.to_yaml(_literal(stored(config))))
    files.write_json(folder / MANIFEST, manifest)
    if PATCH in manifest["files"]:
        files.write_text(folder / PATCH, provenance.patch())
    result: dict[str, Any] = {
        "schema": RESULT_SCHEMA, "id": manifest["id"], "label": config.label, "seed": config.seed,
        "state": "finished", "outcome": None, "error": None, "traceback": None, "seconds": 0.0,
        "threads": config.threads, "notes": [], "warnings": [], "metrics": {}, "code": manifest["code"],
        "artifacts": {},
    }  # fmt: skip
    interrupt: KeyboardInterrupt | None = None
    try:
        registry.load_plugins(config.plugins)
        result["code"] = manifest["code"] = code(config.plugins)  # now with the plugins, which are found when loaded
        with threads(config.threads):
            manifest["data_sha256"] = _measure(config, folder, manifest, result, resume)
    except files.StorageError:
        raise  # not the variant's fault: no verdict on it, and the next command runs it again
    except KeyboardInterrupt as error:
        interrupt, result["state"], result["error"] = error, "interrupted", str(error) or "interrupted by the user"
    except (Exception, SystemExit) as error:
        result["state"] = "failed"
        result["error"] = str(error) if isinstance(error, GptlabError) else f"{type(error).__name__}: {error}"
        result["traceback"] = traceback.format_exc()
    result["seconds"] = time.perf_counter() - clock
    try:
        _seal(folder, manifest, result)
    finally:
        if interrupt:
            raise interrupt
    return result


def _manifest(config: Config, overrides: Sequence[str], start: str, old: dict[str, Any]) -> dict[str, Any]:
    """What is known before the run. `old`: the manifest of the interrupted run that this one takes up."""
    patch = [PATCH] if provenance.patch() else []
    kept = [str(name) for name in old.get("files", [])]
    return {
        "id": identity(config),
        **provenance.provenance(),
        "overrides": list(overrides), "seed": config.seed, "rng": config.rng, "threads": config.threads,
        "config": dataclasses.asdict(config), "code": code(config.plugins), "start": start,
        "earlier_starts": [*old.get("earlier_starts", []), *([old["start"]] if "start" in old else [])],
        "files": list(dict.fromkeys([CONFIG, MANIFEST, *patch, *kept])),
    }  # fmt: skip


def _seal(folder: Path, manifest: dict[str, Any], result: dict[str, Any]) -> None:
    """The manifest with its end, the hash of every artifact, and then, last of all, the result."""
    files.write_json(folder / MANIFEST, {**manifest, "stop": now(), "state": result["state"], "error": result["error"]})
    names = sorted(name for name in manifest["files"] if (folder / name).is_file())
    result["artifacts"] |= {name: digest(folder / name) for name in names}
    if HISTORY in names:
        files.sync(folder / HISTORY)  # it grew line by line; the result, which states its size, survives a power cut
        result["history_bytes"] = (folder / HISTORY).stat().st_size
    files.write_json(folder / RESULT, result, durable=True)


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Give the body that many threads of torch's: another number adds up floats in another order."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _measure(
    config: Config, folder: Path, manifest: dict[str, Any], result: dict[str, Any], resume: bool
) -> str | None:
    """Run the probes, then the training, and return the hash of the data, if any was used."""
    from gptlab import probes  # torch, only now

    subject = probes.Subject(config)
    tables: dict[str, list[dict[str, Any]]] = {}
    for probe in probes.chosen(config):
        if why := probes.why_not(probe, config):
            result["notes"].append(f"{probe.name}: {why}")
            continue
        _record(probes.measure(probe, subject), folder, manifest, result, tables)
        declared = [*probe.facts["metrics"], *probe.facts["layer_metrics"]]
        if declared:  # a plugin's: whoever reads the run later need not have the plugin
            result["declared"] = [*result.get("declared", []), *(dataclasses.asdict(m) for m in declared)]
    if config.train.budget is not None:
        from gptlab.training import train

        manifest["files"] = list(dict.fromkeys([*manifest["files"], *TRAINING]))
        files.write_json(folder / MANIFEST, manifest)
        try:
            trained = train(subject, folder, resume=resume)
        except OSError as error:  # the only files that it touches are its own: lines and checkpoints
            raise files.StorageError(
                error.errno, error.strerror or str(error), str(error.filename or folder)
            ) from error
        manifest["files"] = list(dict.fromkeys([*manifest["files"], *trained.files]))
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
    manifest["files"] = list(dict.fromkeys([*manifest["files"], *names]))
    files.write_json(folder / MANIFEST, manifest)
    for stem, rows in found.tables.items():
        tables[stem] = [*tables.get(stem, []), *rows]
        files.write_text(folder / f"{stem}.csv", _csv(tables[stem]))
    for stem, document in found.documents.items():
        files.write_json(folder / f"{stem}.json", document)


def _old_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an earlier run in this folder; empty where there is none that can be used."""
    try:
        found = files.read_json(folder / MANIFEST)
        return found if isinstance(found["files"], list) else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _clear(folder: Path, names: Sequence[str]) -> None:
    """Take away the end of an earlier run, finished or not, and the files that it names, and nothing else."""
    for name in [RESULT, CRASH, *map(str, names)]:  # result.json first: from here on the folder is not a finished run
        parts = Path(name).parts
        if (len(parts) > 1 or name.endswith("/")) and ".." not in parts and not Path(name).is_absolute():
            files.remove(folder / parts[0])  # a folder that a run wrote files into is its own
        elif os.path.lexists(path := folder / Path(name).name) and (path.is_symlink() or not path.is_dir()):
            files.remove(path)


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
