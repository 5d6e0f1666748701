"""A command's arguments, read by argparse: words and options, without abbreviations, its errors in gptlab's form."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from gptlab.errors import ConfigError, unknown

EXPECTED = "Name a run's folder, a study's, or one that holds studies, such as outputs."
CONFIG_DIR = "--config-dir"
_WORDS = {"expected": "needs a value", "ignored explicit argument": "takes no value"}  # what argparse calls it


class Parser(argparse.ArgumentParser):
    """`words` and the options that a command adds; each may be given once.

    `overrides`: the command takes KEY=VALUE words, and so the folders to search for options. ConfigError for what
    cannot be read.
    """

    def __init__(self, *, overrides: bool = False) -> None:
        super().__init__(add_help=False, allow_abbrev=False, exit_on_error=False)
        self.add_argument("words", nargs="*")
        self.switch("--help", "-h")
        if overrides:
            self.add_argument(CONFIG_DIR, "-cd", dest="config_dirs", action="append", default=[], type=_some)
            for flags in (("--multirun", "-m"), ("--run", "-r")):  # a comma list is a sweep with or without them
                self.add_argument(*flags, action="store_true", help=argparse.SUPPRESS)

    def option(self, *flags: str, choices: Sequence[str] | None = None, default: str | None = None) -> None:
        """An option with a value, which is text."""
        self.add_argument(*flags, action=_Once, choices=choices, default=default, type=_some)

    def repeated(self, flag: str) -> None:
        """An option that may be given several times: a list of texts."""
        self.add_argument(flag, action="append", default=[], type=_some)

    def switch(self, *flags: str) -> None:
        """An option without a value."""
        self.add_argument(*flags, action="store_true")

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The words and options that were given, anywhere among each other."""
        try:
            found, rest = self.parse_known_intermixed_args(self._joined(arguments))
        except argparse.ArgumentError as error:
            said = next((words for start, words in _WORDS.items() if error.message.startswith(start)), error.message)
            flag = str(error.argument_name).partition("/")[0]
            raise ConfigError(f"{flag}: {said}.", code="option-value", key=flag) from error
        strange = next((text for text in rest if text.startswith("-")), None)
        if strange:
            raise unknown("option", strange.partition("=")[0], self._flags())
        found.words += rest
        return found

    def error(self, message: str) -> NoReturn:
        """Argparse's way out, where it has no argument to blame."""
        raise ConfigError(f"{message}.", code="arguments")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise unknown(action.option_strings[0], value, action.choices)

    def _joined(self, arguments: Sequence[str]) -> list[str]:
        """`--sort -loss` as `--sort=-loss`: argparse takes whatever begins with a dash for another option."""
        joined: list[str] = []
        known = self._option_string_actions
        for text in arguments:
            before = known.get(joined[-1]) if joined else None
            if before and before.nargs is None and before.const is None and text[:1] == "-" and text not in known:
                joined[-1] += f"={text}"
            else:
                joined.append(text)
        return joined

    def _flags(self) -> list[str]:
        shown = [action for action in self._actions if action.help != argparse.SUPPRESS]
        return [flag for action in shown for flag in action.option_strings if flag.startswith("--")]


class _Once(argparse.Action):
    """Stores a value; the second one would silently replace the first."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        given = namespace.__dict__.setdefault("_given", set())
        if self.dest in given:
            raise argparse.ArgumentError(self, "given twice, and there can be only one")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


def _some(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected a value")
    return text


@contextmanager
def about_options(given: argparse.Namespace, *keywords: str) -> Iterator[None]:
    """What a function says of its keywords, said of the options that gave them: `by=stp` was typed `--by stp`."""
    try:
        yield
    except ConfigError as error:
        if error.key not in keywords or getattr(given, error.key) is None:
            raise
        rest = str(error).removeprefix(error.key)
        rest = f" {rest[1:]}" if rest[0] == "=" else rest
        raise error.reworded(f"--{error.key}{rest}", key=f"--{error.key}") from error


def names(text: str | None) -> list[str]:
    """`a, b` as a list."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def one_folder(command: str, words: Sequence[str], default: str) -> Path:
    """The one folder that was named, or the default, which need not exist. ConfigError for anything else."""
    if len(words) > 1:
        raise ConfigError(
            f"{command}: one folder at a time, and this names {len(words)}: {' '.join(words)}.",
            code="one-folder-at-a-time",
            value=list(words),
        )
    folder = Path(words[0] if words else default)
    if folder.is_file():
        raise ConfigError(
            f"{command}: {str(folder)!r} is a file. {EXPECTED} Its folder is {str(folder.parent)!r}.",
            code="folder-is-a-file",
            value=str(folder),
            suggestion=str(folder.parent),
        )
    if words and not folder.is_dir():
        raise ConfigError(
            f"{command}: there is no folder {words[0]!r}. {EXPECTED}", code="no-such-folder", value=words[0]
        )
    if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
        raise ConfigError(
            f"{command}: {str(folder)!r} cannot be read (Permission denied).",
            code="folder-not-readable",
            value=str(folder),
        )
    return folder
