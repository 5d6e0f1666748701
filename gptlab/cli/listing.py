"""`gptlab ls`: the studies and runs on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gptlab.cli.arguments import split
from gptlab.config import Config
from gptlab.errors import ConfigError

HELP = """\
usage: gptlab ls [FOLDER]

Lists studies and runs under FOLDER (default: outputs) with their states. Nothing is written or changed."""

OUTPUTS = Config().output_dir


def main(arguments: Sequence[str]) -> int:
    """Print the listing on stdout."""
    given = split(arguments)
    if given.help:
        print(HELP)
        return 0
    if len(given.words) > 1:
        raise ConfigError(f"ls: one folder at a time, and this names {len(given.words)}: {' '.join(given.words)}.")
    if given.words and not Path(given.words[0]).is_dir():
        raise ConfigError(f"ls: there is no folder {given.words[0]!r}.")
    from gptlab.results import print_runs

    print_runs(given.words[0] if given.words else OUTPUTS)
    return 0
