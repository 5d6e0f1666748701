"""`gptlab archive`: runs that a listing leaves out, and nothing else does."""

from __future__ import annotations

from collections.abc import Sequence

from gptlab.cli.daily.marks import KEPT, RUNS, read, runs_named

HELP = f"""\
usage: gptlab archive RUN ... [--remove]

Leaves runs out of `gptlab ls`, which says how many and shows them with --archived; --remove brings them back. Nothing
else changes: compare, audit and report count archived runs, and say so.
{RUNS}
{KEPT}

  gptlab archive r4e632029
  gptlab archive outputs/runs --remove"""


def main(arguments: Sequence[str]) -> int:
    """Print how many runs were archived, or brought back."""
    from gptlab.store.upkeep import marks

    given = read(arguments, HELP)
    if given is None:
        return 0
    runs = runs_named("archive", given.words)
    for run in runs:
        marks.archived(run, not given.remove)
    words = "1 run" if len(runs) == 1 else f"{len(runs):,} runs"
    print(f"{words} brought back." if given.remove else f"{words} archived; gptlab ls --archived shows them.")
    return 0
