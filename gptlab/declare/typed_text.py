"""Text is text: what the command line and YAML would read as a sweep, a number or true and false, is kept as typed.

A key of *free text* (a prompt, a label, a path: `text=True` in the schema) takes all that stands behind its equals
sign. One pair of quotes around the whole is taken off, `${KEY}` still stands for another key, and it sweeps only where
every member is quoted: `data.prompt="Hello, I am","Once"`. A key that holds a *name* (`model.norm`) sweeps with plain
commas, and `no` or `1e3` are names there, too.

`as_typed` does this for an override, by putting quotes where Hydra needs them; `keep` for a file.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig, flag_override
from omegaconf.errors import GrammarParseError
from omegaconf.grammar_parser import parse as parse_interpolations

from gptlab.config import Config
from gptlab.declare.omegaconf_errors import quoted
from gptlab.errors import ConfigError
from gptlab.values import base_of, kind_of

_OVERRIDE = re.compile(r"(\+{0,2})([A-Za-z_][\w.\-]*)=(.*)", re.DOTALL)
_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""  # as Hydra reads it: a backslash before a quote keeps the quote
_ONE_QUOTED = re.compile(_QUOTED, re.DOTALL)
_MEMBERS = rf"\s*(?:{_QUOTED})\s*(?:,\s*(?:{_QUOTED})\s*)*"
_QUOTED_SWEEP = re.compile(rf"{_MEMBERS}|choice\({_MEMBERS}\)", re.DOTALL)
_PLAIN_NAME = re.compile(r"[\w.+\-/]+")
# What YAML or int() reads as another number than a reader does: 010 is eight, 12:30 is 750, 0x10 is 16.
_ODD_NUMBER = re.compile(r"[-+]?(0\d[\d_]*|0[xXbBoO][\da-fA-F_]+|\d[\d_]*(:[0-5]?\d)+)(\.\d*)?")


def as_typed(text: str) -> str:
    """An override with its text in quotes, so that nobody reads a number or a sweep into it. Safe to repeat."""
    match = _OVERRIDE.fullmatch(text)
    if not match:
        return text
    plus, key, value = match.groups()
    if key in free_texts() or key.rpartition(".")[0] in named_texts():
        return f"{plus}{key}={_free(key, value)}"
    members = value.split(",")
    if _is_text(key) and all(map(_PLAIN_NAME.fullmatch, members)):
        return f"{plus}{key}={','.join(_name(key, member) for member in members)}"
    for member in members:
        refuse_odd_number(key, member)
    return text


def refuse_odd_number(key: str, value: str, place: str = "") -> None:
    """ConfigError for a number that files and command lines would read differently, with the line to type."""
    if _is_text(key) or not _ODD_NUMBER.fullmatch(value):
        return
    try:
        meant = str(int(value, 0)) if re.match(r"[-+]?0[xXbBoO]", value) else str(int(value))
    except ValueError:
        meant = ""
    ways = [f"{key}={meant}"] if meant else []
    ways += [quoted(key, value)] if _kind(key) in (Any, None) else []  # it may be text
    written = f" Write {' or '.join(ways)}." if ways else ""
    raise ConfigError(
        f"{place}{key}={value}: is not a plain decimal number.{written}",
        code="not-a-plain-decimal",
        place=place,
        name=key,
        value=value,
        suggestion=ways[0] if ways else None,
    )


def refuse_unquoted(key: str, values: Mapping[Any, Any]) -> None:
    """ConfigError for a text among values in braces that the command line has read as something else."""
    for name, value in values.items():
        where = f"{key}.{name}"
        if isinstance(value, Mapping):
            refuse_unquoted(where, value)
        elif _is_text(where) and isinstance(value, (bool, int, float, list)):
            raise ConfigError(
                f"{where}: is text, and has quotes in braces. Or write it by itself: {where}=TEXT.",
                code="text-in-braces",
                where=where,
            )


def keep(config: DictConfig, tree: yaml.Node, package: str) -> None:
    """Put back each text of a file that YAML has read as something else: `label: off`, `activation: no`.

    In a sweep every value is such a text. `tree` is the file as it is written, `package` where its keys belong.
    """
    for path, text in _misread(tree, [part for part in package.split(".") if part], []):
        node: Any = config
        for part in path[:-1]:
            node = node[part if part in node else int(part)]
        with flag_override(node, ["readonly", "struct"], False):
            node[path[-1]] = text


def plain_numbers(tree: yaml.Node, package: str, place: str) -> None:
    """ConfigError, with its line, for the first number of a file that is no plain decimal one."""
    for path, node in scalars(tree, []):
        if node.style is None and node.tag.endswith((":int", ":float")):
            key = ".".join([package, *path] if package else path)
            refuse_odd_number(key.removeprefix("hydra.sweeper.params."), node.value, f"{place}, line {_line(node)}: ")


@cache
def free_texts() -> frozenset[str]:
    """The dotted keys that hold free text."""
    return frozenset(key for key, value in _marked(Config(), "") if not isinstance(value, dict))


@cache
def named_texts() -> frozenset[str]:
    """The dotted keys that hold free texts by name: `experiment.labels`."""
    return frozenset(key for key, value in _marked(Config(), "") if isinstance(value, dict))


def _marked(node: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for f in dataclasses.fields(node):
        where, value = f"{prefix}{f.name}", getattr(node, f.name)
        if f.metadata.get("text"):
            yield where, value
        elif dataclasses.is_dataclass(value):
            yield from _marked(value, f"{where}.")


def _kind(key: str) -> Any:
    """The type of a key; a block's own setting has that of the model's."""
    return kind_of(re.sub(r"^model\.(layers|pattern\.kinds)\.[^.]+\.", "model.", key))


def _is_text(key: str) -> bool:
    base, _ = base_of(_kind(key))
    return base is str


def _free(key: str, value: str) -> str:
    """One quoted string for Hydra, or the sweep that it is."""
    _, optional = base_of(_kind(key))
    if optional and value == "null" or value == "":
        return value
    if _ONE_QUOTED.fullmatch(value) or _QUOTED_SWEEP.fullmatch(value):
        _check_interpolations(key, value)
        return value
    _check_interpolations(key, value)
    return in_quotes(value)


def _name(key: str, value: str) -> str:
    """A name that Hydra would read as a number or a truth value, in quotes; null is null where it may be."""
    _, optional = base_of(_kind(key))
    odd = re.fullmatch(r"(?i)[+-]?[\d_.]+(e[+-]?\d+)?|true|false|null|[+-]?(inf|nan)", value)
    return in_quotes(value) if odd and not (optional and value.lower() == "null") else value


def in_quotes(value: str) -> str:
    """As Hydra quotes it, in the kind of quotes that needs the fewest backslashes."""
    return QuotedString(value, Quote.single if '"' in value and "'" not in value else Quote.double).with_quotes()


def _check_interpolations(key: str, value: str) -> None:
    if value.strip("'\"") == "???":
        raise ConfigError(
            f"{key}=???: three question marks stand for a value that is still missing.", code="question-marks"
        )
    if "${" not in value:
        return
    try:
        parse_interpolations(value)
    except GrammarParseError as error:
        literal = re.sub(r"(?<!\\)\$\{", r"\\${", value)
        raise ConfigError(
            f"{key}: ${{KEY}} stands for the value of another key, and this cannot be read as one. "
            f"The characters themselves have a backslash before them: '{key}={literal}'",
            code="interpolation-unreadable",
            key=key,
            literal=literal,
        ) from error


def _misread(tree: yaml.Node, package: list[str], path: list[str]) -> Iterator[tuple[list[str], str]]:
    for where, node in scalars(tree, path):
        key = ".".join([*package, *where])
        swept = key.startswith("hydra.sweeper.params.")
        if node.style is not None or node.tag.endswith(":str") or not (swept or _is_text(key)):
            continue
        empty = node.tag.endswith(":null") and (swept or not node.value or base_of(_kind(key))[1])
        if not empty:
            yield where, node.value


def scalars(node: yaml.Node, path: list[str]) -> Iterator[tuple[list[str], yaml.ScalarNode]]:
    """Every single value below keys, with the keys that lead to it."""
    for name, value in node.value if isinstance(node, yaml.MappingNode) else ():
        where = [*path, str(name.value)]
        if isinstance(value, yaml.ScalarNode):
            yield where, value
        else:
            yield from scalars(value, where)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
