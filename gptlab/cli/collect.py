"""`gptlab gc`: list what can be cleared away, and clear it away when told to."""

from __future__ import annotations

from collections.abc import Sequence

from gptlab.cli.arguments import Parser, names, one_folder
from gptlab.config import Config
from gptlab.errors import unknown
from gptlab.texts import harmless

HELP = """\
usage: gptlab gc [FOLDER] [--state STATE[,STATE]] [--yes]

Lists what killed processes left in FOLDER (default: outputs), and with --state the runs that are finished, failed,
diverged, interrupted, crashed or damaged. With --yes all that is listed is removed. A run that some process is writing
is never touched."""
_KEPT = ("running", "planned")


def main(arguments: Sequence[str]) -> int:
    """Print the list on stdout; remove what is on it only with --yes."""
    parser = Parser()
    parser.option("--state")
    parser.switch("--yes")
    given = parser.read(arguments)
    if given.help:
        print(HELP)
        return 0
    folder = one_folder("gc", given.words, Config().output_dir)
    from gptlab.store.states import STATES
    from gptlab.store.upkeep.collect import clear, collect

    states = tuple(names(given.state))
    for state in states:
        if state not in STATES or state in _KEPT:
            raise unknown("--state", state, set(STATES) - set(_KEPT))
    found = list(collect(folder, states))
    if not given.words:
        from gptlab.data import cache

        found += collect(cache.folder())
    gone = 0
    for waste in found:
        done = clear(waste) if given.yes else None
        gone += bool(done)
        word = {None: "", True: "removed  ", False: "in use   "}[done]
        print(harmless(f"{word}{waste.path}  ({waste.what}, {_bytes(waste.size)})"))
    total = _bytes(sum(waste.size for waste in found))
    if given.yes:
        print(f"{gone} of {len(found)} removed, {total}.")
    else:
        print(f"{len(found)} found, {total}." + (" Nothing was removed: --yes does that." if found else ""))
    return 0


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
