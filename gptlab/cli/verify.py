"""`gptlab verify`: is everything on disk as the runs wrote it?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gptlab.cli.arguments import EXPECTED, Parser, one_folder
from gptlab.config import Config
from gptlab.errors import ConfigError
from gptlab.texts import harmless

HELP = """\
usage: gptlab verify [FOLDER]

Checks every run in FOLDER (a run, a study, or a folder of studies; default: outputs): each file against the SHA-256
that the run recorded, each config against its id, each line of each history. Nothing is written or changed.
Exit code 1 when something is not as it was written."""


def main(arguments: Sequence[str]) -> int:
    """Print what is wrong, run by run, and a summary."""
    given = Parser().read(arguments)
    if given.help:
        print(HELP)
        return 0
    folder = one_folder("verify", given.words, Config().output_dir)
    from gptlab.store.upkeep.verify import verify

    states: Counter[str] = Counter()
    checked = wrong = 0
    for verdict in verify(folder):
        states[verdict.state] += 1
        checked += verdict.checked
        wrong += bool(verdict.problems)
        for number, problem in enumerate(verdict.problems):
            print(harmless(f"{verdict.folder}") if number == 0 else "", end="\n" if number == 0 else "")
            print(harmless(f"    {problem}"))
    if not states and given.words:
        raise ConfigError(
            f"verify: there is no run in {str(folder)!r}. {EXPECTED}", code="verify-no-run", value=str(folder)
        )
    found = ", ".join(f"{number} {state}" for state, number in states.items()) or "none"
    print(
        f"{states.total()} runs ({found}), {checked} files checked: " + (f"{wrong} damaged" if wrong else "all intact")
    )
    return 1 if wrong else 0
