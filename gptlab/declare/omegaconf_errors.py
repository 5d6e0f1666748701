"""What OmegaConf says of a value, in gptlab's words: of a whole config, or of one override."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationKeyError,
    InterpolationToMissingValueError,
    OmegaConfBaseException,
    UnsupportedInterpolationType,
)

from gptlab.config import Config, flatten
from gptlab.errors import ConfigError, closest, wrong_value
from gptlab.values import base_of, fields_of, kind_of, misfits, say, words
from gptlab.values import unknown_key as the_unknown_key


def refused(error: OmegaConfBaseException, node: Any) -> ConfigError:
    """What OmegaConf says of the nested dict `node`, in gptlab's words."""
    key = str(error.full_key or error.key or "")
    found = _interpolation(error, key, node) or next(misfits(node), None)
    return found or ConfigError(
        f"{key or 'config'}: its value cannot be used here.", code="value-cannot-be-used", key=key
    )


def of_override(place: str, error: OmegaConfBaseException) -> ConfigError:
    """What OmegaConf says of the override `place` (empty where there is none to name), in gptlab's words."""
    key = str(error.full_key or error.key or "")
    if isinstance(error, (ConfigKeyError, ConfigAttributeError)):
        found = unknown_key(key)
        return found.reworded(f"{place}: {found}") if place else found
    given, equals, _ = place.lstrip("+").partition("=")
    key = given if equals else key
    kind = kind_of(key.partition("[")[0])
    if kind is None:
        return ConfigError(f"{place or key}: cannot be used here.", code="override-cannot-be-used", key=key)
    expected = f"must be {words(kind)}."
    value = place.partition("=")[2]
    if words(kind).startswith("text") and value[:1] in ("[", "{"):
        expected += f" Text that has brackets goes in quotes: {quoted(key, value)}"
    bare = value.strip("'\"")
    if bare != value and "," in bare:
        expected += f" Without the quotes it is a sweep: {key}={bare}"
    said = f"{place.lstrip('+') or key}: {expected}"
    return ConfigError(said, code="wrong-type", key=key, value=value, expected=words(kind))


def unknown_key(full_key: str) -> ConfigError:
    """The error for a key that the schema lacks, with the closest key beside which it would stand."""
    parent, _, key = full_key.rpartition(".")
    base, _ = base_of(kind_of(parent) if parent else Config)
    if base is Any or typing.get_origin(base) is dict:
        said = f"{parent}: a new key is set by its full name: {full_key}.NAME=VALUE."
        return ConfigError(said, code="free-key-by-full-name", key=full_key)
    siblings = fields_of(base) if isinstance(base, type) and dataclasses.is_dataclass(base) else {}
    return the_unknown_key(parent or "config", key, siblings)


def quoted(key: str, value: str) -> str:
    """As it is typed: the shell takes one pair of quotes away."""
    return f"""'{key}="{value}"'""" if '"' not in value and "'" not in value else f"""{key}='"..."'"""


def _interpolation(error: OmegaConfBaseException, key: str, node: Any) -> ConfigError | None:
    text = flatten(node).get(key, "") if isinstance(node, dict) else ""
    if not (isinstance(text, str) and "${" in text):
        return None
    if isinstance(error, InterpolationKeyError):
        wanted = str(error).split("'")[1] if "'" in str(error) else ""
        match = closest(wanted, flatten(Config()))
        why = f"there is no key {wanted!r}." + (f" Did you mean {match!r}?" if match else "")
        return wrong_value(key, say(text), why, code="interpolation", cause="no-such-key", suggestion=match)
    if isinstance(error, InterpolationToMissingValueError):
        cause, why = "no-value", "the key that it names has no value."
    elif isinstance(error, UnsupportedInterpolationType):
        cause, why = "no-such-function", "no such function. ${KEY} stands for the value of another key."
    elif "Recursive" in str(error):
        cause, why = "circle", "leads back to itself."
    else:
        cause, why = "does-not-fit", f"what it stands for does not fit: must be {words(kind_of(key))}."
    return wrong_value(key, say(text), why, code="interpolation", cause=cause)
