"""Does a value fit its key? The schema's types in words, for the message about one that does not.

OmegaConf converts and refuses; what it says of it ("could not be converted to Integer", "Merge error: str is not a
subclass of ModelConfig") is not for users. Here a refused config is looked through once more, by the same types.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from gptlab.config import Config, ProbesConfig
from gptlab.errors import ConfigError, unknown, wrong_value
from gptlab.other_names import KEYS as KEYS_ELSEWHERE
from gptlab.other_names import NOWHERE

KEYS = "gptlab --cfg job"  # the command that lists all keys
_YES_OR_NO = {"true", "false", "yes", "no", "on", "off", "y", "n", "0", "1"}
_SCALARS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def misfits(node: Any, kind: Any = Config, key: str = "") -> Iterator[ConfigError]:
    """An error, with its `key`, for each value in a nested dict that the type `kind` cannot hold, in their order."""
    if _is_open(node) or kind is Any:
        return
    base, optional = base_of(kind)
    if node is None and optional:
        return
    if isinstance(base, type) and dataclasses.is_dataclass(base) and isinstance(node, dict):
        kinds = fields_of(base)
        for name, value in node.items():
            if name in kinds:
                yield from misfits(value, kinds[name], _join(key, name))
            elif base is not ProbesConfig:  # where it may be a plugin's, which is known when that is loaded
                yield at(_join(key, name), _unknown_name(key, str(name), value, kinds))
    elif typing.get_origin(base) is list and isinstance(node, list):
        for place, value in enumerate(node):
            yield from misfits(value, typing.get_args(base)[0], f"{key}[{place}]")
    elif typing.get_origin(base) is dict and isinstance(node, dict):
        for name, value in node.items():
            yield from misfits(value, typing.get_args(base)[1], _join(key, name))
    elif base not in _SCALARS or not _fits(node, base):
        yield must_be(key, node, kind)


def must_be(key: str, value: Any, kind: Any) -> ConfigError:
    """`model.n_layers=2.5: must be a whole number.`"""
    why, line = f"must be {words(kind)}.", None
    if isinstance(value, str) and "," in value and all(_fits(part, base_of(kind)[0]) for part in value.split(",")):
        line = f"{key}={value}"
        why += f" Without the quotes it is a sweep: {line}"
    return wrong_value(key or "config", say(value), why, code="wrong-type", expected=words(kind), command=line)


def words(kind: Any) -> str:
    """What a value of this type looks like: `a whole number, or null`."""
    base, optional = base_of(kind)
    if isinstance(base, type) and dataclasses.is_dataclass(base):
        names = list(fields_of(base))
        known = f"keys and values ({', '.join(names[:4])}{', ...' if len(names) > 4 else ''})"
    elif typing.get_origin(base) is list:
        (inner,) = typing.get_args(base)
        examples = {int: "[1, 2]", float: "[0.5, 1]", str: "[a, b]"}
        known = f"a list, as in {examples.get(inner, '[[0.5, 1], [2, 0]]')}"
    elif typing.get_origin(base) is dict:
        known = "names and values, as in {name: value}"
    else:
        known = _SCALARS.get(base, "plain data")
    return f"{known}, or null" if optional else known


def kind_of(key: str) -> Any:
    """The type that the schema gives to a dotted key; Any where it gives none, None where there is no such key."""
    kind: Any = Config
    for part in key.split("."):
        base, _ = base_of(kind)
        if isinstance(base, type) and dataclasses.is_dataclass(base):
            if part not in fields_of(base):
                return None
            kind = fields_of(base)[part]
        elif typing.get_origin(base) is dict:
            kind = typing.get_args(base)[1]
        else:
            return Any if base is Any else None
    return kind


def _unknown_name(parent: str, name: str, value: Any, known: dict[str, Any]) -> ConfigError:
    """For a key in a nested dict; one with dots is a line of the command line, written into a file."""
    section, _, rest = name.partition(".")
    if rest and section in known:
        inner = f"{rest.replace('.', ': {')}: {say(value)}" + "}" * name.count(".")
        said = f"{_join(parent, name)}: keys are nested here. Write {section}: {{{inner}."
        return ConfigError(said, code="key-with-dots", suggestion=f"{section}: {{{inner}")
    plain = say(value) if isinstance(value, (str, int, float)) else ""
    return unknown_key(parent or "config", name, known, plain)


def unknown_key(what: str, name: str, known: Iterable[str], value: str = "") -> ConfigError:
    """The error for a key that does not exist: what it is called here if another library has it, else the closest.

    `value`: what it would be set to, for the line to type.
    """
    other = KEYS_ELSEWHERE.get(name.lower().replace("-", "_"))
    if other:
        line = other if "=" in other else f"{other}={value}" if value else other
        facts = {"key": what, "value": name, "suggestion": other, "command": line}
        return ConfigError(f"{what}: {name!r} does not exist. Here it is {line}", code="unknown-name", **facts)
    return unknown(what, name, known, KEYS, cutoff=1.0 if name in NOWHERE else 0.75)


def say(value: Any) -> str:
    """A value as YAML and the command line have it, cut where it is long."""
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _fits(value: Any, base: type) -> bool:
    if isinstance(value, (dict, list)) or value is None:
        return False
    if base is str:
        return True
    if base is bool:
        return isinstance(value, bool) or str(value).lower() in _YES_OR_NO
    if isinstance(value, bool) or base is int and isinstance(value, float):
        return False
    try:
        base(value)
    except (TypeError, ValueError):
        return False
    return True


def _is_open(value: Any) -> bool:
    return isinstance(value, str) and ("${" in value or value == "???")


def base_of(kind: Any) -> tuple[Any, bool]:
    """The type without its None, and whether it had one."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return kind, kind is Any
    others = [one for one in typing.get_args(kind) if one is not type(None)]
    return others[0], True


@cache
def fields_of(kind: type) -> dict[str, Any]:
    """Name -> type, of a dataclass."""
    return {name: hint for name, hint in typing.get_type_hints(kind).items() if not name.startswith("_")}


def _join(key: str, name: Any) -> str:
    return f"{key}.{name}" if key else str(name)


def at(key: str, error: ConfigError) -> ConfigError:
    """The error, with its key."""
    return error.with_facts(key=key)
