"""What can be read off the overrides alone: which ablations, which keys, and what a table calls the variant."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, Override

from gptlab.config import Config, ProbesConfig, flatten
from gptlab.declare.typed_text import as_typed, refuse_unquoted
from gptlab.errors import ConfigError
from gptlab.identity import NOT_IDENTITY
from gptlab.values import kind_of, must_be, unknown_key

NO_ABLATION = "none"
GROUPS = ("model", "data", "train", "probes", "match", "tune", "experiment", "ablation")
UNLABELLED = (*NOT_IDENTITY, "seed", "plugins", "ablation")  # a table has other columns for these, or none
_OPTIONS = ("model.options.", "model.layers.", "model.pattern.", "data.options.", "train.options.")
# Keys that the schema cannot list.
_FREE_FORM = (*_OPTIONS, "experiment.options.", "experiment.labels.", "launcher_options.", "train.kernels.")
_HYDRA_HINTS = {
    "hydra.run": "Use output_dir=FOLDER.",
    "hydra.sweep.": "Use output_dir=FOLDER.",
    "hydra.searchpath": "Use --config-dir FOLDER or GPTLAB_CONF_PATH.",
    "hydra.sweeper.params": "Write the sweep itself: key=a,b.",
}


def normalised(overrides: Iterable[str]) -> list[str]:
    """Overrides as Hydra wants them: text in quotes; options, settings per layer and names are new keys, `++`."""
    new = (*_FREE_FORM, *(f"{prefix.removesuffix('.')}={{" for prefix in _FREE_FORM))
    return [f"++{text}" if text.startswith(new) else text for text in map(as_typed, overrides)]


def check_key(
    override: Override, groups: Collection[str], refuse_missing: Callable[[str, str, Sequence[str]], None]
) -> None:
    """ConfigError unless the override sets a key of the schema or chooses from a group.

    `refuse_missing(override, group, names)` refuses names that are no options of the group.
    """
    key, text = override.key_or_group, (override.input_line or "").lstrip("+")
    if not key:
        raise ConfigError(
            f"{text}: an override is KEY=VALUE, and this has no key.", code="override-without-key", override=text
        )
    if key.partition("/")[0].partition(".")[0] == "hydra":
        hint = next((hint for start, hint in _HYDRA_HINTS.items() if key.startswith(start)), "")
        raise ConfigError(
            f"{text}: gptlab starts its runs itself, so this setting of Hydra has no effect. {hint}".rstrip(),
            code="hydra-setting",
            override=text,
        )
    if override.is_delete():
        raise ConfigError(
            f"{text}: a key cannot be removed. Set it to another value or to null.", code="key-removed", override=text
        )
    if override.package is not None:
        raise ConfigError(
            f"{text}: a group has its own place in the config. Write {key}={override.value()}.",
            code="group-with-package",
            override=text,
        )
    if override.is_add() and not override.is_force_add() and not key.startswith(_FREE_FORM) and _exists(key, groups):
        raise ConfigError(f"+{text}: the key is there already. Write {text}.", code="key-added-twice", override=text)
    if sets_values(override):
        _check_braces(override)
    if key in groups:
        _check_choice(override, text)
        if not override.is_sweep_override() and not isinstance(override.value(), dict):
            value = override.value()
            refuse_missing(text, key, [str(name) for name in (value if isinstance(value, list) else [value])])
        return
    node = _node(key, text, groups)
    value = override.value()
    if isinstance(node, bool) and isinstance(value, int) and value not in (0, 1):  # OmegaConf would call it true
        raise must_be(key, value, bool)


def _node(key: str, text: str, groups: Collection[str]) -> Any:
    """The schema's own value of a key; None below a free-form node. ConfigError where there is no such key."""
    node: Any = Config()
    parts = key.split(".")
    for depth, part in enumerate(parts):
        if not dataclasses.is_dataclass(node):
            return None  # inside a list or a free-form options node: the merge and the component decide
        names = {field.name for field in dataclasses.fields(node)}
        if part not in names:
            if isinstance(node, ProbesConfig):
                return None  # a plugin's, if it is there: known when the plugins are loaded
            raise _no_key(text, part, names if depth else names | set(groups), key == part)
        node = getattr(node, part)
    return node


def _no_key(text: str, part: str, names: Collection[str], alone: bool) -> ConfigError:
    """The error for a key that does not exist. `alone`: it is all that was given, and may have lost its section."""
    places = dict.fromkeys(tuple(key.split(".")[:2]) for key in flatten(Config()))
    below = [".".join(place) for place in places if place[1:] == (part,)]
    if alone and below:
        lines = [f"{key}={text.partition('=')[2]}" for key in below]
        said = f"{text}: {part!r} does not exist. Did you mean {' or '.join(lines)}?"
        return ConfigError(said, code="key-stands-deeper", override=text, part=part, command=lines[0])
    return unknown_key(text, part, names, text.partition("=")[2])


def _check_braces(override: Override) -> None:
    value = override.value()
    for given in value.list if isinstance(value, ChoiceSweep) else [value]:
        refuse_unquoted(override.key_or_group, given)  # type: ignore[arg-type]


def _exists(key: str, groups: Collection[str]) -> bool:
    return key in groups or kind_of(key) is not None


def _check_choice(override: Override, text: str) -> None:
    key, value = override.key_or_group, override.value()
    if value is None or isinstance(value, dict) and key == "ablation":
        said = "null" if value is None else "a set of values"
        raise ConfigError(
            f"{text}: a group needs one of its options; {said} is none of them.",
            code="group-without-option",
            override=text,
        )
    if isinstance(value, list):
        if key != "ablation":
            raise ConfigError(
                f"{text}: only ablations stack. Choose one, or write a sweep: {key}={','.join(map(str, value))}.",
                code="only-ablations-stack",
                override=text,
            )
        twice = next((name for name in value if value.count(name) > 1), None)
        if twice:
            raise ConfigError(f"{text}: {twice} is given twice.", code="ablation-twice", override=text, twice=twice)


def sets_values(override: Override) -> bool:
    """Whether the override gives values, `model={n_layers: 3}`, also swept, where others choose an option."""
    value = override.value()
    values = value.list if isinstance(value, ChoiceSweep) else [value]
    return all(isinstance(item, dict) for item in values)


def ablations(parsed: Iterable[Override]) -> tuple[str, ...]:
    """The ablations that are stacked, in their order; empty for the baseline."""
    for override in parsed:
        if override.key_or_group == "ablation":
            value = override.value()
            names = value if isinstance(value, list) else [value]
            return tuple(str(name) for name in names if name is not None and str(name) != NO_ABLATION)
    return ()


def settings(parsed: Iterable[Override]) -> dict[str, str]:
    """Dotted key -> value as text, for whatever beyond seed and ablation tells two variants apart."""
    found: dict[str, str] = {}
    for override in parsed:
        key, value = override.key_or_group, override.value()
        if key.split(".")[0] in UNLABELLED:
            continue
        if isinstance(value, Mapping):
            found |= {f"{key}.{inner}": str(v) for inner, v in flatten(dict(value)).items()}
        else:
            found[key] = value if isinstance(value, str) else str(override.get_value_element_as_str())
    return found


def label(names: Sequence[str], values: Mapping[str, str], baseline: str = "") -> str:
    """`relu+post_ln+n_layers=6`. `baseline`: the word for a variant without ablation, where others have one."""
    parts = list(names) or ([baseline] if baseline else [])
    parts += [f"{short_key(key)}={value}" for key, value in values.items()]
    return "+".join(parts) or "baseline"


def short_key(key: str) -> str:
    """The shortest ending of a dotted key that names no other key."""
    if key.startswith("model.layers."):
        return key.removeprefix("model.").replace(".options.", ".")
    if key.startswith(_OPTIONS):
        return key.split(".options.", 1)[1] if ".options." in key else key.removeprefix("model.")
    every = [*flatten(Config()), *GROUPS]
    parts = key.split(".")
    for start in range(len(parts) - 1, 0, -1):
        ending = ".".join(parts[start:])
        if sum(other == ending or other.endswith(f".{ending}") for other in every) <= 1:
            return ending
    return key


def slug(text: str, limit: int = 80) -> str:
    """`text` as part of a file name: letters, digits and `._+=-` only, at most `limit` characters."""
    return re.sub(r"[^A-Za-z0-9._+=-]+", "-", text).strip("-.")[:limit].rstrip("-.") or "run"
