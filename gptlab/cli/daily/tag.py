"""`gptlab tag`: words by which runs are found again."""

from __future__ import annotations

from collections.abc import Sequence

from gptlab.cli.daily.marks import KEPT, RUNS, read, runs_named
from gptlab.errors import ConfigError
from gptlab.texts import printable

HELP = f"""\
usage: gptlab tag RUN ... TAG ... [--remove]

Adds tags to runs, or takes them away; without a TAG, prints those that there are. `gptlab ls --tag TAG` asks for them.
{RUNS}
{KEPT}

  gptlab tag r4e632029 keep
  gptlab tag outputs/runs figure-3 --remove"""


def main(arguments: Sequence[str]) -> int:
    """Print the tags of each run that was named."""
    from gptlab.store.upkeep import marks
    from gptlab.store.upkeep.named_runs import looks_like_a_run

    given = read(arguments, HELP)
    if given is None:
        return 0
    first = given.words[:1] + [word for word in given.words[1:] if looks_like_a_run(word)]
    tags = tuple(word for word in given.words[1:] if word not in first)
    runs = runs_named("tag", first)
    if given.remove and not tags:
        raise ConfigError("tag --remove: name the tags to take away.", code="tag-remove-what")
    for one in tags:
        marks.check_tag(one)
    change = marks.untagged if given.remove else marks.tagged
    for run in runs:
        found = change(run, tags) if tags else marks.readable(run)
        print(printable(f"{run}: {', '.join(found.tags) or 'no tags'}"))
    return 0
