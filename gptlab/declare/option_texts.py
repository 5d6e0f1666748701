"""Options that hold text keep it: `data.options.prefix=1e3` is 1e3, not 1000.0, and `off` in a file is no truth value.

Which options hold text is what the annotation of the chosen component says, so it is known only when the plugins are
loaded: the composition comes first, and what it made a number, a truth value or null is then looked at once more.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml  # type: ignore[import-untyped]

from gptlab import registry
from gptlab.declare.typed_text import in_quotes, scalars
from gptlab.errors import ConfigError
from gptlab.signatures import Option
from gptlab.values import base_of

_ODD = re.compile(r"(?i)[+-]?[\d_.]+(e[+-]?\d+)?|true|false|null|[+-]?(inf|nan)")
_OVERRIDE = re.compile(r"\+{0,2}([\w.\-]+)=(.*)", re.DOTALL)
_KEY = re.compile(r"(model|data|train|experiment)\.(layers\.[^.]+\.)?options\..+|probes\.\w+\.\w+")
_MEMBERS = re.compile(r"[\w.+\-/]+(?:\s*,\s*[\w.+\-/]+)+|choice\(\s*[\w.+\-/]+(?:\s*,\s*[\w.+\-/]+)*\s*\)")

Written = dict[tuple[str, str], str]  # (dotted key, `repr` of the value that YAML made of it) -> what is written


def members(override: str) -> list[str]:
    """The members of a plain sweep over an option, each as it is typed; empty for any other override."""
    match = _OVERRIDE.fullmatch(override)
    if not match or not _KEY.fullmatch(match[1]) or not _MEMBERS.fullmatch(match[2]):
        return []
    return [member.strip() for member in match[2].removeprefix("choice(").removesuffix(")").split(",")]


def quoted(overrides: Sequence[str], composed: Mapping[str, Any]) -> tuple[str, ...]:
    """The overrides, with quotes around each text that Hydra has read as something else. Safe to repeat."""
    return tuple(_quoted(text, composed) for text in overrides)


def _quoted(text: str, composed: Mapping[str, Any]) -> str:
    match = _OVERRIDE.fullmatch(text)
    if not match or not _KEY.fullmatch(match[1]) or not _ODD.fullmatch(match[2]):
        return text
    if not _holds_text(match[1], match[2].lower() == "null", composed):
        return text
    return text[: match.start(2)] + in_quotes(match[2])


def written(tree: yaml.Node, package: str, config: Any) -> Written:
    """What a file has for its options, where YAML made something else of it. `config`: what it made."""
    found: Written = {}
    for path, node in scalars(tree, []):
        key = ".".join([*filter(None, [package]), *path])
        if node.style is None and not node.tag.endswith(":str") and node.value and _KEY.fullmatch(key):
            found[key, repr(_at(config, path))] = node.value
    return found


def as_written(composed: dict[str, Any], files: Written) -> dict[str, Any]:
    """The composition, with each text of an option as its file has it."""
    for (key, value), text in files.items():
        *parents, last = key.split(".")
        if repr(_at(composed, [*parents, last])) == value and _holds_text(key, value == "None", composed):
            composed = copy.deepcopy(composed)
            _at(composed, parents)[last] = text
    return composed


def _at(node: Any, path: Sequence[str]) -> Any:
    """What stands below these keys, of which some may be numbers; None where nothing does."""
    for part in path:
        if not isinstance(node, Mapping):
            return None
        node = node.get(part, node.get(int(part)) if part.isdecimal() else None)
    return node


def _holds_text(key: str, null: bool, composed: Mapping[str, Any]) -> bool:
    """Whether what this option is given is text. `null` is none where the option may be left out."""
    plugins = composed.get("plugins")
    if isinstance(plugins, list) and all(isinstance(name, str) for name in plugins):
        registry.load_plugins(plugins)
    kinds = [base_of(option.type) for option in _options(key, composed)]
    return bool(kinds) and all(base is str and not (null and optional) for base, optional in kinds)


def _options(key: str, composed: Mapping[str, Any]) -> Iterator[Option]:
    """The options that a key may set: one, or those of one name of a slot that several blocks may fill differently."""
    section, _, rest = key.partition(".")
    *parents, name = rest.split(".")
    where = parents[-1] if parents else ""
    found: list[registry.Component] = []
    try:
        if section == "model" and where in registry.SLOTS:
            found = list(registry.components(where).values())
        elif section == "train" and where in ("optimizer", "schedule"):
            found = [registry.get(where, str(_at(composed, ["train", where])))]
        elif section == "data":
            found = [registry.get("data", str(_at(composed, ["data", "source"])))]
        elif section == "experiment":
            found = [registry.get("analysis", str(_at(composed, ["experiment", "analysis"])))]
        elif section == "probes":
            found = [registry.get("probe", where)]
    except ConfigError:
        return  # a name that is not there is refused where it stands
    for component in found:
        yield from (option for option in component.options if option.name == name)
