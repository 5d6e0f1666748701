"""Run the checks of the claims that were asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gptlab import streams
from gptlab.book.reproduce import measured_by
from gptlab.book.reproduce.claims import Claim, chosen, load_claims
from gptlab.book.reproduce.verdicts import Found, Result, judge
from gptlab.errors import GptlabError
from gptlab.running.execute import threads

if TYPE_CHECKING:
    from gptlab.book.reproduce.lab import Lab

NEEDS = "needs "  # begins the note of a claim that a part of gptlab has to be there for


def reproduce(
    groups: Sequence[str] = (),
    lab: Lab | None = None,
    started: Callable[[int, int, Claim], None] = lambda number, total, claim: None,
) -> list[Result]:
    """One result for each claim of `groups` (all without), in the order of the file. The global random state is kept.

    `started(number, total, claim)` is told what comes next. ConfigError for an unknown group; GptlabError for claims
    and checks that do not fit together, and for a check that fails.
    """
    claims = load_claims()
    wanted = chosen(claims, groups)
    import gptlab.book.reproduce.recomputed  # noqa: F401 - registers them; here, so that a wrong group need not wait for torch
    from gptlab.book.reproduce.lab import Lab

    measured_by.match(claims)
    lab = lab or Lab()
    found = []
    try:
        for number, claim in enumerate(wanted, start=1):
            started(number, len(wanted), claim)
            found.append(examine(claim, lab))
    finally:
        lab.close()
    return found


def examine(claim: Claim, lab: Lab) -> Result:
    """One claim, measured where it can be."""
    if not claim.computable:
        return Result(claim, "not computable here", shows=claim.note)
    needed = claim.note.removeprefix(NEEDS) if claim.note.startswith(NEEDS) else ""
    if needed and find_spec(needed) is None:
        return Result(claim, "not computable here", shows=f"{NEEDS}{needed.rpartition('.')[2]}, which is not there")
    start = time.perf_counter()
    try:
        # Parts that are built by themselves draw from the global stream. One thread, as a run has: most models here are
        # tiny, and several threads wait for each other most of the time where the machine has other work too.
        with streams.forked(lab.seed, claim.id), threads(1):
            found = measured_by.CHECKS[claim.id](lab)
    except GptlabError as error:
        raise GptlabError(f"{claim.id}: {error}", code="claim-failed", id=claim.id) from error
    seconds = time.perf_counter() - start
    return judge(claim, found if isinstance(found, Found) else Found(found), seconds)
