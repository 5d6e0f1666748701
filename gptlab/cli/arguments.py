"""A command's arguments, split into words and options. Small on purpose: overrides are for Hydra to read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gptlab.errors import ConfigError, unknown

CONFIG_DIR = "--config-dir"
_SHORT = {"-cd": CONFIG_DIR, "-h": "--help", "-m": "--multirun", "-r": "--run"}
_NO_EFFECT = ("--multirun", "--run")  # a comma list is a sweep with or without them


@dataclass
class Arguments:
    """What was given: overrides or names, folders to search, and the command's own options."""

    words: list[str] = field(default_factory=list)
    config_dirs: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    help: bool = False


def split(arguments: Sequence[str], options: Mapping[str, Collection[str]] | None = None) -> Arguments:
    """Read `arguments`. `options`: flag -> its allowed values. ConfigError for any other flag."""
    options = options or {}
    found = Arguments()
    rest = iter(arguments)
    for text in rest:
        if not text.startswith("-"):
            found.words.append(text)
            continue
        flag, equals, value = text.partition("=")
        flag = _SHORT.get(flag, flag)
        if flag == "--help":
            found.help = True
        elif flag in options or flag == CONFIG_DIR:
            value = value if equals else next(rest, "")
            if flag == CONFIG_DIR:
                found.config_dirs.append(value)
            elif value not in options[flag]:
                raise unknown(flag, value, options[flag])
            else:
                found.options[flag] = value
        elif flag not in _NO_EFFECT:
            raise unknown("option", flag, [*options, CONFIG_DIR, "--help"])
    if "" in found.config_dirs:
        raise ConfigError(f"{CONFIG_DIR}: needs a folder.")
    return found
