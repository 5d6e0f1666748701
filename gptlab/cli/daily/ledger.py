"""`gptlab ledger`: has this been tried before, in any study here, and what came out?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gptlab.cli.arguments import Parser, one_folder
from gptlab.cli.output import tell
from gptlab.config import Config, flatten
from gptlab.errors import ConfigError, unknown
from gptlab.store.json_text import json_text
from gptlab.texts import harmless_json, printable

if TYPE_CHECKING:
    from gptlab.comparing.ledger import Filter

HELP = """\
usage: gptlab ledger [FOLDER] [ablation=NAME | KEY[=VALUE]] ... [--format table|md|csv|json]

Lists every change that a study under FOLDER (default: outputs) tried: against which baseline, with how many seeds, the
difference in that study's primary metric, and its verdict. The same change in several studies stands together.
ablation=NAME  what is called so, and whatever else changed all that this ablation sets
KEY            a dotted key of the config that was changed; with =VALUE, to this value. Several must all hold.

  gptlab ledger
  gptlab ledger ablation=relu
  gptlab ledger model.norm=rmsnorm train.schedule"""
SCHEMA = 1
_ABLATION = "ablation"


def main(arguments: Sequence[str]) -> int:
    """Print the ledger on stdout. 0, also where nothing was found."""
    parser = Parser(overrides=True)
    parser.option("--format", choices=("table", "md", "csv", "json"), default="table")
    given = parser.read(arguments)
    if given.help:
        print(HELP)
        return 0
    folders = [word for word in given.words if "=" not in word and (os.path.isdir(word) or os.sep in word)]
    folder = one_folder("ledger", folders, Config().output_dir)
    asked = [word for word in given.words if word not in folders]
    from gptlab.comparing.ledger import ledger

    entries, problems = ledger(folder, [_filter(word, folder, given.config_dirs) for word in asked])
    for problem in problems:
        tell(problem)
    if given.format == "json":
        document = {"schema": SCHEMA, "asked": asked, "entries": [entry.to_json() for entry in entries]}
        print(harmless_json(json_text(document, indent=1)))
        return 0
    from gptlab.show.ledger_table import ledger_csv, ledger_markdown, print_ledger

    if given.format != "table":
        print(ledger_markdown(entries) if given.format == "md" else ledger_csv(entries), end="")
    elif entries:
        print_ledger(entries)
    else:
        print(printable(f"No study in {folder} tried {' and '.join(asked) or 'anything'}."))
    return 0


def _filter(word: str, folder: Path, config_dirs: Sequence[str]) -> Filter:
    """The test that a word of the command line stands for. ConfigError for a key or an ablation that nobody knows."""
    from gptlab.comparing.ledger import changes_key

    key, equals, value = word.partition("=")
    if key == _ABLATION:
        return _ablations(value, config_dirs)
    if equals and not value:
        raise ConfigError(
            f"ledger: {word}: a value is missing. {key} alone asks for any.", code="ledger-value", key=key
        )
    known = _known(key, folder)
    return changes_key(known, value if equals else None)


def _known(key: str, folder: Path) -> str:
    """The dotted key that was meant: as typed, or with `model.` before it."""
    from gptlab.comparing.ledger import known_keys

    names = known_keys(folder) | set(flatten(Config()))
    for name in (key, f"model.{key}"):
        if name in names:
            return name
    raise unknown("ledger", key, names, "gptlab ledger --help")


def _ablations(value: str, config_dirs: Sequence[str]) -> Filter:
    """`a`, or `[a,b]` for both of them in one variant."""
    from gptlab.comparing.ledger import is_ablation
    from gptlab.declare.composer import Composer
    from gptlab.identity import left_out

    composer = Composer(config_dirs)
    plain = composer.settings([])
    tests = []
    for name in value.strip("[]").split(","):
        options = composer.groups[_ABLATION]
        if name not in options:
            raise unknown(_ABLATION, name, options, "gptlab --help")
        own = composer.settings([f"{_ABLATION}={name}"])
        changed = {
            key: new for key, new in own.items() if not left_out(key) and (key not in plain or plain[key] != new)
        }
        tests.append(is_ablation(name, changed))
    return lambda label, delta: all(test(label, delta) for test in tests)
