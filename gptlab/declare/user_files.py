"""One of the user's config files: what can be wrong with it, said with file and line before Hydra sees it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf._utils import get_yaml_loader

from gptlab.config import Config
from gptlab.declare.sources import shown
from gptlab.declare.typed_text import plain_numbers
from gptlab.declare.yaml_slips import at_line, explained, misplaced
from gptlab.errors import ConfigError
from gptlab.values import kind_of, misfits

GLOBAL_GROUPS = ("ablation", "experiment")  # groups whose files set keys all over the config
HEADER = "# @package _global_"
_SWEEP = "Hydra's own settings have no effect, but for the sweep of an experiment: hydra: {sweeper: {params: ...}}."


@dataclass(frozen=True)
class UserFile:
    """One of the user's files: where its keys belong (dotted, empty: to the root), and its YAML with places."""

    path: Path
    package: str
    tree: yaml.Node

    def line(self, key: str) -> int | None:
        """The line of a dotted key of the config; None when the file does not set it."""
        if self.package and not key.startswith(f"{self.package}."):
            return None
        node, line = self.tree, None
        parts = key.removeprefix(f"{self.package}." if self.package else "").split(".")
        while parts:
            pairs = node.value if isinstance(node, yaml.MappingNode) else []
            for count in range(len(parts), 0, -1):  # a key with dots in it is a mistake that has a line, too
                name = ".".join(parts[:count]).partition("[")[0]
                found = next(((k, v) for k, v in pairs if k.value == name), None)
                if found:
                    break
            else:
                return line
            line, node, parts = found[0].start_mark.line + 1, found[1], parts[count:]
        return line

    def value(self, key: str) -> Any:
        """What the file says of a dotted key: plain data, None for nothing."""
        node: Any = self.tree
        for part in key.removeprefix(f"{self.package}." if self.package else "").split("."):
            node = next((v for k, v in node.value if k.value == part), None) if node is not None else None
        plain: Any = yaml.SafeLoader("").construct_document(node) if node is not None else None
        return plain


def looked_at(path: Path, name: str) -> UserFile:
    """What can be said of a file before its values are known."""
    place = shown(path)
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise ConfigError(
            f"{place}, line {line}: is not text in UTF-8. Save it as UTF-8.",
            code="file-not-utf8",
            place=place,
            line=line,
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{place}: cannot be read ({error.strerror}).", code="file-unreadable", place=place, strerror=error.strerror
        ) from error
    group = name.partition("/")[0] if "/" in name else ""  # what Hydra goes by: model=mine/small is a choice of `model`
    package = _package(text, place, group)
    try:
        tree = yaml.compose(text, Loader=_named(place))
    except yaml.YAMLError as error:
        raise explained(error, text, place) from error
    if tree is None:
        tree = yaml.MappingNode("tag:yaml.org,2002:map", [])
    if not isinstance(tree, yaml.MappingNode):
        slip = misplaced(tree.value, "") if isinstance(tree, yaml.ScalarNode) else None
        if slip:
            raise at_line(place, tree.start_mark.line + 1, *slip)
        raise ConfigError(
            f"{place}, line {tree.start_mark.line + 1}: must hold keys and values, such as "
            + ("model: {activation: relu}." if group in GLOBAL_GROUPS else "n_layers: 3."),
            code="file-holds-no-keys",
            file=place,
            line=tree.start_mark.line + 1,
        )
    plain_numbers(tree, package, place)
    file = UserFile(path, package, tree)
    _check_defaults(file, place, group)
    return file


def _named(place: str) -> type:
    """A YAML loader that calls the file by its name when it complains."""

    class Loader(get_yaml_loader()):  # type: ignore[misc]  # the one that the values are read with
        def __init__(self, stream: Any) -> None:
            super().__init__(stream)
            self.name = place

    return Loader


def _package(text: str, place: str, group: str) -> str:
    headers = [line for line in _headers(text) if line.lstrip("# \t").startswith("@package")]
    asked = headers[0].lstrip("#").split()[1:] if headers else []
    if group in GLOBAL_GROUPS and asked != ["_global_"]:
        raise ConfigError(
            f"{place}: its first line must be {HEADER!r}, because it sets keys all over the config.",
            code="package-header-missing",
            place=place,
            header=HEADER,
        )
    if len(asked) > 1 or headers and not asked:
        raise ConfigError(
            f"{place}: {headers[0]!r} is not understood. Leave it out, or write {HEADER!r}.",
            code="package-header-unknown",
            place=place,
            header=HEADER,
        )
    package = asked[0] if asked else "_group_"
    if package == "_global_":
        return ""
    package = package.replace("_group_", group)
    if kind_of(package) is None:
        raise ConfigError(
            f"{place}: @package {package}: the config has no such place. Leave it out.",
            code="package-of-no-place",
            place=place,
            package=package,
        )
    return package


def _headers(text: str) -> Iterator[str]:
    """The lines that Hydra takes for headers: `# @...`, from the top, up to the first that is none."""
    for line in map(str.strip, text.splitlines()):
        if line and not re.match(r"#\s*@", line):
            return
        if line:
            yield line


def _check_defaults(file: UserFile, place: str, group: str) -> None:
    """The defaults list is a list of names, and an ablation chooses no presets."""
    for key, node in file.tree.value:
        if key.value != "defaults":
            continue
        if not isinstance(node, yaml.SequenceNode):
            raise ConfigError(
                f"{place}, line {key.start_mark.line + 1}: defaults must be a list: [_self_, other].",
                code="defaults-not-a-list",
                place=place,
            )
        for item in node.value:
            line = item.start_mark.line + 1
            if isinstance(item, yaml.MappingNode) and group == "ablation":
                # Hydra follows the first choice of a group, and an ablation comes last: it would be ignored.
                raise ConfigError(
                    f"{place}, line {line}: an ablation chooses no presets. Choose them on the command line or in an "
                    "experiment. Another ablation is named without its group: defaults: [other, _self_].",
                    code="ablation-chooses-presets",
                    place=place,
                    line=line,
                )


def check_values(file: UserFile, content: Any, name: str) -> None:
    """Every key exists and every value has the type of its key."""
    if not isinstance(content, dict):
        return  # said already
    place = shown(file.path)
    content = {key: value for key, value in content.items() if key != "defaults"}
    hydra = content.pop("hydra", None) if not file.package else None
    _check_hydra(hydra, place, file, name)
    wrong = next(misfits(content, kind_of(file.package) if file.package else Config, file.package), None)
    if wrong:
        line = file.line(wrong.key)
        slip = misplaced(file.value(wrong.key), wrong.key) if _wants_keys(wrong) else None
        if slip:
            raise at_line(place, _line_of_slip(file, line or 1), *slip, key=wrong.key) from wrong
        said = f"{place}{f', line {line}' if line else ''}: {wrong}"
        raise wrong.reworded(said, file=place, line=line) from wrong


def _wants_keys(wrong: ConfigError) -> bool:
    return str(wrong.facts.get("expected", "")).startswith("keys and values")


def _line_of_slip(file: UserFile, line: int) -> int:
    """A section and the slip in it may stand in two lines."""
    lines = file.path.read_text(encoding="utf-8").splitlines()
    below = line < len(lines) and lines[line - 1].rstrip().endswith(":") and bool(misplaced(lines[line].strip(), ""))
    return line + 1 if below else line


def _check_hydra(hydra: Any, place: str, file: UserFile, name: str) -> None:
    if hydra is None or name.startswith("ablation/"):  # refused elsewhere, whatever it says
        return
    where = f"{place}, line {file.line('hydra')}"
    sweeper = hydra.get("sweeper") if isinstance(hydra, dict) and set(hydra) == {"sweeper"} else None
    params = sweeper.get("params") if isinstance(sweeper, dict) and set(sweeper) == {"params"} else None
    if not name.startswith("experiment/") or params is None and hydra:
        raise ConfigError(f"{where}: {_SWEEP}", code="file-sets-hydra", where=where)
    if not isinstance(params, dict):
        raise ConfigError(
            f"{where}: hydra.sweeper.params: must be keys and values, as in {{ablation: 'none,relu'}}.",
            code="sweep-params-not-keys",
            where=where,
        )
