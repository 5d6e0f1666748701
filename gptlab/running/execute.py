"""One run: a checked config and a folder in, measurements and `result.json` out.

The folder says early what it is (config.yaml, manifest.json) and `result.json` comes last, so a folder without one
never passes for a finished run.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlab import registry
from gptlab.config import Config
from gptlab.errors import GptlabError
from gptlab.identity import identity
from gptlab.kernels import with_kernels
from gptlab.running import provenance
from gptlab.store import data_files, files, locks
from gptlab.store.atomic import StorageError, sync_file
from gptlab.store.config_file import write_config
from gptlab.store.csv_text import csv_text
from gptlab.store.damage import DamagedError
from gptlab.store.data_files import DataRecord
from gptlab.store.dependencies import code
from gptlab.store.manifest import Manifest, read_manifest
from gptlab.store.names import CHECKPOINTS, CONFIG, CRASH, HISTORY, MANIFEST, RESULT, now
from gptlab.store.states import OVER, digest

if TYPE_CHECKING:
    from gptlab.data.batches import TokenSource, VectorSource
    from gptlab.probes import Measurement

RESULT_SCHEMA = 1
PATCH = "code.patch"
TRAINING = (HISTORY, f"{CHECKPOINTS}/")  # what a training goes on from, if it is to be resumed


def execute(config: Config, folder: Path, *, overrides: Sequence[str] = (), resume: bool = False) -> dict[str, Any]:
    """Measure one variant, train it if it says so, and record all of it in `folder`. Returns what result.json holds.

    `resume`: the folder belongs to this very id, and what is there is kept for the run to go on from. An error of the
    variant is recorded (state `failed`), not raised; KeyboardInterrupt is recorded and raised. locks.BusyError when
    another process is writing there, OSError when the folder cannot be written.
    """
    files.make_folder(folder.parent)
    with locks.claim(folder.parent, lambda: folder):
        return execute_claimed(config, folder, overrides=overrides, resume=resume)


def execute_claimed(
    config: Config, folder: Path, *, overrides: Sequence[str] = (), resume: bool = False, changed: str = ""
) -> dict[str, Any]:
    """As `execute`, in a folder that the caller has claimed. `changed`: what is no longer as it was when this run
    began, where it goes on all the same; the record says so."""
    import gptlab.probes
    import gptlab.training  # noqa: F401 - torch, only now: loading it is not the first run's work

    clock = time.perf_counter()
    old = _old_manifest(folder)
    config, lacking = _with_kernels(config, old if resume else Manifest())
    _clear(folder, [] if resume else [*old.files, *TRAINING])
    manifest = _manifest(config, overrides, folder, old if resume else Manifest())
    write_config(folder, config)
    files.write_json(folder / MANIFEST, manifest)
    if PATCH in manifest["files"]:
        files.write_text(folder / PATCH, provenance.patch())
    result: dict[str, Any] = {
        "schema": RESULT_SCHEMA, "id": manifest["id"], "label": config.label, "seed": config.seed,
        "state": "finished", "outcome": None, "error": None, "traceback": None, "seconds": 0.0,
        "threads": config.threads, "notes": [], "metrics": {}, "scored": {}, "code": manifest["code"], "data": {},
        "artifacts": {},
        "warnings": lacking,
    }  # fmt: skip
    if changed:
        result["warnings"].append(f"not one run: {changed} changed before it went on (on_changed=resume)")
    interrupt: KeyboardInterrupt | None = None
    try:
        registry.load_plugins(config.plugins)
        result["code"] = manifest["code"] = manifest["stretches"][-1]["code"] = code(config.plugins)  # plugins too
        with threads(config.threads):
            _measure(config, folder, manifest, result, resume)
    except StorageError:
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


def _with_kernels(config: Config, old: Manifest) -> tuple[Config, list[str]]:
    """The config with a kernel named at every place, and in words what this machine lacks of them.

    `old`: the manifest of the run that this one takes up, for it goes on with the kernels that it began with.
    """
    if config.train.budget is None:
        return config, []
    from gptlab.training.conditions import usable

    try:
        registry.load_plugins(config.plugins)
    except GptlabError:
        return config, []  # the run will end with this error
    began = old.config.get("train")
    recorded = began.get("kernels") if isinstance(began, dict) else None
    kernels, lacking = usable(with_kernels(config, recorded) if isinstance(recorded, dict) else config)
    return with_kernels(config, kernels), lacking


def _manifest(config: Config, overrides: Sequence[str], folder: Path, old: Manifest) -> dict[str, Any]:
    """What is known before the run. `old`: the manifest of the interrupted run that this one takes up."""
    patch = [PATCH] if provenance.patch() else []
    kept = [name for name in old.files if name in TRAINING or os.path.lexists(folder / name)]
    where, made, start = provenance.provenance(), code(config.plugins), now()
    stretch = {"start": start, "code": made, "data": DataRecord().to_json(), "threads": config.threads,
               **{key: where[key] for key in ("python", "packages", "platform", "host", "cpu", "git")}}  # fmt: skip
    return {
        "id": identity(config),
        **where,
        "overrides": list(overrides), "seed": config.seed, "rng": config.rng, "threads": config.threads,
        "config": dataclasses.asdict(config), "code": made, "start": start, "data_sha256": None,
        "stretches": [*map(dict, old.stretches), stretch],
        "files": list(dict.fromkeys([CONFIG, MANIFEST, *patch, *kept])),
    }  # fmt: skip


def _seal(folder: Path, manifest: dict[str, Any], result: dict[str, Any]) -> None:
    """The manifest with its end, the hash of every artifact, and then, last of all, the result.

    StorageError where the folder is no longer that of this run, or has lost one of its files: such a run has no end.
    """
    locks.check_held(folder)
    manifest["stretches"][-1]["stop"] = stop = now()
    files.write_json(folder / MANIFEST, {**manifest, "stop": stop, "state": result["state"], "error": result["error"]})
    names = [name for name in sorted(manifest["files"]) if not name.endswith("/")]
    lost = [name for name in names if not (folder / name).is_file()]
    if lost and result["state"] in OVER:
        raise StorageError(errno.ENOENT, "was taken away while the run went on", str(folder / lost[0]))
    names = [name for name in names if name not in lost]
    result["artifacts"] |= {name: digest(folder / name) for name in names}
    if HISTORY in names:
        sync_file(folder / HISTORY)  # it grew line by line; the result, which states its size, survives a power cut
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


def _measure(config: Config, folder: Path, manifest: dict[str, Any], result: dict[str, Any], resume: bool) -> None:
    """Run the probes, then the training, and record the data, if any was used."""
    from gptlab import probes  # torch, only now
    from gptlab.model.build import weights_fit
    from gptlab.weights.loading import other_heads

    if fit := weights_fit(config.model):
        result["warnings"] += [*fit.sentences(), *other_heads(fit.found, config.model.n_heads)]
        result["notes"] += [f"weights: {note}" for note in fit.found.notes]
        if fit.whole and config.train.budget is None:
            result["notes"].append("weights: all are loaded and none is trained, so every seed is this very model")
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
    if config.train.budget is None:
        if "source" in vars(subject):
            _note_data(subject.source, manifest, result)
        return
    from gptlab.training import train

    _note_data(subject.source, manifest, result)  # before it starts: it is to be known of a run that is killed
    manifest["files"] = list(dict.fromkeys([*manifest["files"], *TRAINING]))
    files.write_json(folder / MANIFEST, manifest)
    try:
        trained = train(subject, folder, resume=resume)
    except OSError as error:  # the only files that it touches are its own: lines and checkpoints
        raise StorageError(error.errno, error.strerror or str(error), str(error.filename or folder)) from error
    manifest["files"] = list(dict.fromkeys([*manifest["files"], *trained.files]))
    _record(trained, folder, manifest, result, tables)
    result["outcome"], result["artifacts"] = trained.outcome, trained.artifacts
    result["scored"] = trained.scored
    if trained.outcome == "diverged":
        result["state"], result["error"] = "diverged", trained.reason or None


def _note_data(source: TokenSource | VectorSource, manifest: dict[str, Any], result: dict[str, Any]) -> None:
    found = data_files.record(source.hash, source.files).to_json()
    manifest["data_sha256"] = source.hash
    manifest["stretches"][-1]["data"] = result["data"] = found


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
        columns = list(tables[stem][0]) if tables[stem] else []
        lines = ([row.get(name) for name in columns] for row in tables[stem])
        files.write_text(folder / f"{stem}.csv", csv_text(columns, lines))
    for stem, document in found.documents.items():
        files.write_json(folder / f"{stem}.json", document)


def _old_manifest(folder: Path) -> Manifest:
    """The manifest of an earlier run in this folder; empty where there is none that can be used."""
    try:
        return read_manifest(folder)
    except DamagedError:
        return Manifest()


def _clear(folder: Path, names: Sequence[str]) -> None:
    """Take away the end of an earlier run, finished or not, and the files that it names, and nothing else."""
    for name in [RESULT, CRASH, *map(str, names)]:  # result.json first: from here on the folder is not a finished run
        parts = Path(name).parts
        if (len(parts) > 1 or name.endswith("/")) and ".." not in parts and not Path(name).is_absolute():
            files.remove(folder / parts[0])  # a folder that a run wrote files into is its own
        elif os.path.lexists(path := folder / Path(name).name) and (path.is_symlink() or not path.is_dir()):
            files.remove(path)
