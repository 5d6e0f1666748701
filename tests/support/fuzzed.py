"""Damage of every kind to the files of a study: bytes, JSON of another shape, numbers beyond all tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

# Bare, and nested in what stood there before. `Infinity` and deep nesting are what Python's own reader takes.
LEAVES = st.sampled_from(
    [None, True, 0, -1, 2**70, -(2**70), 1e308, -1e308, 1e-320, float("inf"), float("-inf"), float("nan"), "", "x",
     "\ud800", "\x1b[31m", "nan", [], {}, [[]], {"": None}, {"seed": 1}, "../..", "a" * 500]
)  # fmt: skip
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))
RAW = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\x00\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"1e999999",
    b"{}\n{}\n",
]


@st.composite
def damages(draw: st.DrawFn) -> dict[str, Any]:
    """What is done to a file: `raw` bytes in its place, a `cut` or a `flip`ped bit, or another `value` at a `path`."""
    kind = draw(st.sampled_from(["raw", "cut", "flip", "value", "value", "value", "gone", "folder"]))
    place = draw(st.floats(0, 1, exclude_max=True))
    if kind == "raw":
        return {"kind": kind, "raw": draw(st.sampled_from(RAW) | st.binary(max_size=40))}
    if kind == "value":
        return {"kind": kind, "steps": draw(st.lists(st.integers(0, 40), max_size=4)), "value": draw(JSON)}
    return {"kind": kind, "place": place, "bit": draw(st.integers(0, 7))}


def damage(path: Path, how: dict[str, Any]) -> None:
    """Do it. A value goes to the place in the JSON (of the last line, in a .jsonl) that the steps lead to."""
    content = path.read_bytes()
    kind = how["kind"]
    if kind == "raw":
        path.write_bytes(how["raw"])
    elif kind == "cut":
        path.write_bytes(content[: int(len(content) * how["place"])])
    elif kind == "flip":
        changed = bytearray(content or b"\0")
        changed[int(len(changed) * how["place"])] ^= 1 << how["bit"]
        path.write_bytes(changed)
    elif kind == "gone":
        path.unlink()
    elif kind == "folder":
        path.unlink()
        path.mkdir()
    elif path.suffix in (".json", ".jsonl"):
        *before, last = content.decode().splitlines() if path.suffix == ".jsonl" else [content.decode()]
        value = _changed(json.loads(last), how["steps"], how["value"])
        path.write_text("\n".join([*before, json.dumps(value)]) + "\n")
    else:
        lines = content.decode().splitlines()
        lines[(how["steps"] or [0])[0] % len(lines)] = json.dumps(how["value"])
        path.write_text("\n".join(lines) + "\n")


def _changed(value: Any, steps: list[int], new: Any) -> Any:
    if not steps or not isinstance(value, dict | list) or not value:
        return new
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[steps[0] % len(keys)]
    value[key] = _changed(value[key], steps[1:], new)
    return value
