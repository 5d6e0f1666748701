"""Spans of layers on the command line: `model.layers.0-1.norm=rmsnorm`.

Hydra reads no key with a part that begins with a digit and has a hyphen, so such a part has an underscore in front
while Hydra has it. Files need none; there, a layer may be a number, which Hydra takes for another key than its text.
"""

from __future__ import annotations

import re
from typing import Any

_TYPED = re.compile(r"(\+{0,2}model\.layers\.)(?=\d+-\d+[.=])")
_HYDRAS = re.compile(r"(model\.layers\.)_(?=\d+-\d+)")
_PRINTED = re.compile(r"^( *)_(\d+-\d+:)", re.MULTILINE)


def for_hydra(text: str) -> str:
    """An override as Hydra can read it."""
    match = _TYPED.match(text)
    return f"{match[1]}_{text[match.end(1) :]}" if match else text


def as_written(text: str) -> str:
    """An override or a key that Hydra has had, as the user wrote it."""
    return _HYDRAS.sub(r"\1", text)


def printed(text: str) -> str:
    """A config that Hydra has printed, with the spans as files have them."""
    return _PRINTED.sub(r"\1\2", text)


def one_key_each(layers: Any) -> Any:
    """`model.layers` with one key for one span: layer 0 of a file and "0" of the command line belong together.

    Of two values for one setting the later one stands, as everywhere.
    """
    if not isinstance(layers, dict):
        return layers
    found: dict[str, Any] = {}
    for span, given in layers.items():
        name = re.sub(r"^_(?=\d+-\d+$)", "", str(span))
        found[name] = _merged(found[name], given) if name in found else given
    return found


def _merged(one: Any, other: Any) -> Any:
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return other
    return {**one, **{key: _merged(one[key], value) if key in one else value for key, value in other.items()}}
