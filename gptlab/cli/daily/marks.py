"""What `gptlab tag`, `note` and `archive` have in common: how runs are named, and the words on it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from gptlab.cli.arguments import Parser
from gptlab.config import Config
from gptlab.errors import ConfigError

RUNS = """\
RUN is a run's folder, the beginning of the id of a run in outputs/, or a study's folder: all of its runs."""
KEPT = """\
It stands in marks.json in the run's folder, and is no part of the run: no id, no hash and no result changes."""


def read(arguments: Sequence[str], text: str) -> Namespace | None:
    """What was typed; None where the help was asked for, which has been printed then."""
    parser = Parser()
    parser.switch("--remove")
    given = parser.read(arguments)
    if given.help:
        print(text)
        return None
    return given


def runs_named(command: str, words: Sequence[str]) -> list[Path]:
    """The folders of the runs that were named, each once. ConfigError where there is none, and where the marks of any
    of them cannot be read: what is refused changes nothing."""
    from gptlab.store.upkeep.marks import readable
    from gptlab.store.upkeep.named_runs import named_runs

    if not words:
        raise ConfigError(f"{command}: name a run (gptlab ls lists them).", code="marks-which-run", key=command)
    runs = list(dict.fromkeys(run for word in words for run in named_runs(word, Path(Config().output_dir))))
    for run in runs:
        readable(run)
    return runs
