"""Which run is which: the hash of all that can change a result, and what two configs declare differently.

A new key at its default stays out, so that runs from before it keep their ids (`new=True` in `gptlab.config`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from functools import cache
from typing import Any, get_args, get_type_hints

from gptlab.config import Config, flatten, unread_by
from gptlab.errors import ConfigError, wrong_value

SCHEMA_VERSION = 2  # 2: scored on rows of the evaluation's own

# Keys that cannot change a result, and why: they stay out of a run's identity. One list, on purpose, and `gptlab
# explain-id` prints it.
NOT_IDENTITY = {
    "label": "a name for tables",
    "output_dir": "where results are put",
    "model.weights": "where a file lies; what it holds is in model.weights_sha256",
    "experiment": "the question and the study; the run is the same whoever asks",
    "match": "what it solved is a value of the run's own",
    "tune": "what it chose is a value of the run's own",
    "add_baseline": "which other runs go along",
    "workers": "how many runs go side by side",
    "threads": "moves the last bits of a sum only; recorded with the run",
    "launcher": "where runs are started",
    "launcher_options": "where runs are started",
    "order": "which run goes first",
    "on_error": "whether other runs go on",
    "on_invalid": "which runs go along",
    "retry_failed": "which runs are started",
    "rerun_on": "which runs are started",
    "on_changed": "which runs are started, and from where",
    "tracker": "a second copy of the history",
    "train.checkpoint_every": "how much of a training a kill can cost",
    "train.keep_checkpoints": "what is left on disk",
    "train.kernels": "moves the last bits of a sum only; recorded with the run",
}


def left_out(key: str) -> str:
    """Why a dotted key, or the one that it belongs to, stays out of a run's identity; empty where it does not."""
    parts = key.split(".")
    above = (".".join(parts[: length + 1]) for length in range(len(parts)))
    return next((NOT_IDENTITY[name] for name in above if name in NOT_IDENTITY), "")


def identity(config: Config | dict[str, Any], version: int | None = None) -> str:
    """SHA-256 (hex) of all that can change a result, with the schema version. Equal hash: equal run.

    Also for a config as a nested dict, as config.yaml holds it; `version`: of the schema that gave an older run its id.
    """
    keys = {"schema_version": SCHEMA_VERSION if version is None else version, **identity_keys(config)}
    return hashlib.sha256(_json(keys).encode()).hexdigest()


def variant(config: Config) -> str:
    """The identity without the seed: equal for the runs that one row of a table covers."""
    return identity(dataclasses.replace(config, seed=0))


def has_identity(config: dict[str, Any], recorded: str) -> bool:
    """Whether a stored config has this id, by the schema of today or by the older one that the run was made with."""
    return any(identity(config, version) == recorded for version in range(SCHEMA_VERSION, 0, -1))


def identity_keys(config: Config | dict[str, Any]) -> dict[str, Any]:
    """Dotted key -> value, of all that goes into the identity.

    Defaults are written out, so a new default is a new id; but a *new key* at its default is left out (see `_key`).
    ConfigError for what JSON would mix up with something else: 1 and "1" as keys, NaN, a dot within a key.
    """
    new = defaults_of_new(Config)
    return {k: v for k, v in _declared(config).items() if k not in new or _json(v) != _json(new[k])}


def delta(baseline: Config, variant: Config) -> dict[str, tuple[Any, Any]]:
    """What a variant changed: dotted key -> (value in the baseline, value in the variant). Identity keys only."""
    old, new = _declared(baseline), _declared(variant)
    keys = [*new, *(k for k in old if k not in new)]
    return {k: (old.get(k), new.get(k)) for k in keys if _json(old.get(k, ...)) != _json(new.get(k, ...))}


def _declared(config: Config | dict[str, Any]) -> dict[str, Any]:
    """Dotted key -> value of all keys that can change a result."""
    plain = dataclasses.asdict(config) if isinstance(config, Config) else _completed(config)
    kept = {key: value for key, value in plain.items() if key not in NOT_IDENTITY}
    _check_canonical("", kept)
    # An empty node of options and a missing one are the same declaration; an option whose value is empty is one.
    empty = re.compile(r"(model|train)\.options(\.\w+)?|model\.layers|data\.options")
    flat = {key: value for key, value in flatten(kept).items() if not left_out(key)}
    return {key: value for key, value in flat.items() if value != {} or not empty.fullmatch(key)}


def _completed(plain: dict[str, Any]) -> dict[str, Any]:
    """A stored config with what `stored` left out."""
    model = plain.get("model")
    if not isinstance(model, dict) or "architecture" not in model:
        return plain
    return {**plain, "model": {**unread_by(str(model["architecture"])), **model}}


@cache
def defaults_of_new(node: type, prefix: str = "", *, new: bool = False) -> dict[str, Any]:
    """Dotted key -> default, of the keys of a schema that are marked as new, those of a whole new group included."""
    types, found = get_type_hints(node), {}
    for f in dataclasses.fields(node):
        where = f"{prefix}.{f.name}" if prefix else f.name
        default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
        marked = new or bool(f.metadata.get("new"))
        group = next((t for t in (types[f.name], *get_args(types[f.name])) if dataclasses.is_dataclass(t)), None)
        if marked and not (group and default is not None):
            found[where] = default
        if isinstance(group, type):  # a new group that is left out by default has no default inside
            found |= defaults_of_new(group, where, new=marked and default is not None)
    return found


def _json(value: Any) -> str:
    """One text for one value, and another for every other: 1, 1.0, true and "1" are four."""
    return "..." if value is ... else json.dumps(value, sort_keys=True, allow_nan=False)


def _check_canonical(where: str, value: Any) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or "." in key:
                kind = "holds a dot" if isinstance(key, str) else "is no text"
                raise ConfigError(
                    f"{where or 'config'}: the key {key!r} {kind}, so it could be taken for another one.",
                    code="key-not-canonical",
                    where=where,
                    name=key,
                )
            _check_canonical(f"{where}.{key}" if where else key, item)
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            _check_canonical(f"{where}[{place}]", item)
    elif isinstance(value, float) and not math.isfinite(value):
        raise wrong_value(where, value, "must be a finite number.", code="not-finite")
