"""`gptlab note`: a sentence about a run, beside it."""

from __future__ import annotations

from collections.abc import Sequence

from gptlab.cli.daily.marks import KEPT, read, runs_named
from gptlab.errors import ConfigError
from gptlab.texts import printable

HELP = f"""\
usage: gptlab note RUN [TEXT | NUMBER --remove]

Adds a note to a run, takes note NUMBER away, or prints the notes that there are. `gptlab ls` shows them.
RUN is a run's folder, or the beginning of the id of a run in outputs/.
{KEPT}

  gptlab note r4e632029 "diverges without warm-up"
  gptlab note r4e632029 1 --remove"""


def main(arguments: Sequence[str]) -> int:
    """Print the notes of the run, with their numbers."""
    from gptlab.store.upkeep import marks

    given = read(arguments, HELP)
    if given is None:
        return 0
    if len(given.words) > 2:
        raise ConfigError("note: takes one RUN and one TEXT; put the text in quotes.", code="note-takes-one-text")
    runs, text = runs_named("note", given.words[:1]), "".join(given.words[1:])
    if given.remove and not text.isdecimal():
        raise ConfigError("note --remove: takes the number of a note, as in 1.", code="note-remove-what", value=text)
    if len(runs) != 1:
        raise ConfigError(f"note: takes one run, and {given.words[0]} is a study.", code="note-takes-one-run")
    if given.remove:
        found = marks.unnoted(runs[0], int(text))
    else:
        found = marks.noted(runs[0], text) if given.words[1:] else marks.readable(runs[0])
    print(printable(f"{runs[0]}{'' if found.notes else ': no notes'}"))
    for number, one in enumerate(found.notes, 1):
        print(printable(f"{number:3}  {one.when[:10]}  {' '.join(one.text.split())}"))
    return 0
