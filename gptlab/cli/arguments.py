"""A command's arguments, split into words and options. Small on purpose: overrides are for Hydra to read."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gptlab.errors import ConfigError, unknown

EXPECTED = "Name a run's folder, a study's, or one that holds studies, such as outputs."
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


def split(
    arguments: Sequence[str],
    options: Mapping[str, Collection[str] | None] | None = None,
    switches: Collection[str] = (),
) -> Arguments:
    """Read `arguments`. `options`: flag -> its allowed values, None for any; `switches` are flags without a value.

    ConfigError for any other flag.
    """
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
        elif flag in switches:
            found.options[flag] = "yes"
        elif flag == CONFIG_DIR:
            found.config_dirs.append(value if equals else next(rest, ""))
        elif flag in options:
            found.options[flag] = _checked(flag, value if equals else next(rest, ""), options[flag])
        elif flag not in _NO_EFFECT:
            raise unknown("option", flag, [*options, *switches, CONFIG_DIR, "--help"])
    if "" in found.config_dirs:
        raise ConfigError(f"{CONFIG_DIR}: needs a folder.")
    return found


def one_folder(command: str, words: Sequence[str], default: str) -> Path:
    """The one folder that was named, or the default, which need not exist. ConfigError for anything else."""
    if len(words) > 1:
        raise ConfigError(f"{command}: one folder at a time, and this names {len(words)}: {' '.join(words)}.")
    folder = Path(words[0] if words else default)
    if folder.is_file():
        raise ConfigError(f"{command}: {str(folder)!r} is a file. {EXPECTED} Its folder is {str(folder.parent)!r}.")
    if words and not folder.is_dir():
        raise ConfigError(f"{command}: there is no folder {words[0]!r}. {EXPECTED}")
    if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
        raise ConfigError(f"{command}: {str(folder)!r} cannot be read (Permission denied).")
    return folder


def _checked(flag: str, value: str, allowed: Collection[str] | None) -> str:
    if allowed is not None and value not in allowed:
        raise unknown(flag, value, allowed)
    if not value:
        raise ConfigError(f"{flag}: needs a value.")
    return value
