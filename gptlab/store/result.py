"""result.json in types: what a run says of itself when it has come to its end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple, TypeGuard

from gptlab.errors import ConfigError
from gptlab.metrics import METRICS, Metric, declare
from gptlab.store.damage import DamagedError, parsing
from gptlab.store.data_files import DataRecord, parse_data
from gptlab.store.names import RESULT

LARGEST = 1e100  # beyond all that is measured; the squares of much larger numbers are infinite
_NO_DATA = DataRecord()
RECORDED = ("finished", "failed", "diverged", "interrupted")  # the states that it can name


class Scored(NamedTuple):
    """What decided a loss. `rows`: SHA-256 of the targets; `share`: of all that is held out, where there is an end."""

    rows: str = ""
    tokens: int | None = None  # targets
    share: float | None = None


class Result(NamedTuple):  # as quick to make as can be: there are thousands
    """What a run left. `metrics` holds finite numbers, `not_finite` names the others; `hashes` is file -> SHA-256.

    `outcome` is that of the training: ok, diverged, collapsed, leaked; empty without one. `history_bytes`: of
    metrics.jsonl, as the run wrote it. `code` and `data`: what made it, for `gptlab.store.dependencies`.
    """

    id: str = ""
    label: str = ""
    seed: int | None = None
    state: str = ""
    outcome: str = ""
    error: str = ""
    seconds: float | None = None
    threads: int = 1
    metrics: Mapping[str, int | float] = MappingProxyType({})
    not_finite: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    hashes: Mapping[str, str] = MappingProxyType({})
    history_bytes: int | None = None
    scored: Mapping[str, Scored] = MappingProxyType({})  # validation: on the way; heldout: at the end
    code: Mapping[str, str] = MappingProxyType({})
    data: DataRecord = DataRecord()


def parse_result(content: dict[str, Any]) -> Result:
    """`content` in types. DamagedError for a state or metrics that nobody understands; what is missing is empty."""
    state, metrics = content.get("state"), content.get("metrics") or {}
    if state not in RECORDED:
        raise DamagedError(f"{RESULT}: state {state!r} not understood")
    if not isinstance(metrics, dict):
        raise DamagedError(f"{RESULT}: metrics not understood")
    _know(content.get("declared"))
    numbers = {
        name: value for name, value in metrics.items()
        if (type(value) is float and -LARGEST <= value <= LARGEST) or is_finite(value)
    }  # fmt: skip
    data = _NO_DATA
    if content.get("data"):
        with parsing(RESULT):
            data = parse_data(content["data"])
    seconds, threads = content.get("seconds"), content.get("threads")
    return Result(
        id=_text(content.get("id")),
        label=_text(content.get("label")),
        seed=whole(content.get("seed")),
        state=state,
        outcome=_text(content.get("outcome")),
        error=_text(content.get("error")),
        seconds=float(seconds) if is_finite(seconds) else None,
        threads=whole(threads) or 1,
        metrics=numbers,
        not_finite=() if len(numbers) == len(metrics) else tuple(name for name in metrics if name not in numbers),
        notes=_sentences(content.get("notes")),
        warnings=_sentences(content.get("warnings")),
        hashes=_texts(content.get("artifacts")),
        history_bytes=whole(content.get("history_bytes")),
        scored=_scored(content.get("scored")),
        code=_texts(content.get("code")),
        data=data,
    )


def _scored(found: Any) -> dict[str, Scored]:
    parts = {"validation": found, "heldout": found.get("heldout")} if isinstance(found, dict) else {}
    return {
        name: Scored(
            _text(part["rows"]),
            whole(part.get("tokens")),
            float(share) if is_finite(share := part.get("share")) else None,
        )
        for name, part in parts.items()
        if isinstance(part, dict) and part.get("rows")
    }


def _know(declared: Any) -> None:
    """The metrics of plugins that a run states, so that it can be compared without them. A name that is known stays."""
    for entry in declared if isinstance(declared, list) else ():
        if isinstance(entry, dict) and entry.get("name") not in METRICS:
            with suppress(TypeError, ConfigError):
                declare(Metric(**entry))


def is_finite(value: Any) -> TypeGuard[int | float]:
    """Whether `value` is a number to compute with: not NaN, not infinite nor near it, no bool, at most 64 bits."""
    if type(value) is float:
        return abs(value) <= LARGEST
    return whole(value) is not None


def whole(value: Any) -> int | None:
    """`value` where it is a whole number of at most 64 bits: no honest count, and no seed, is beyond them."""
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {name: text for name, text in value.items() if isinstance(text, str)}


def _sentences(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, value)) if isinstance(value, list) else ()
