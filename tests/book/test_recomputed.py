"""Each check reads its value from a computation: in a lab where something is wrong, it says something else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache, partial

import pytest

import gptlab.book.reproduce.recomputed  # noqa: F401 - registers them
from gptlab.book.reproduce.claims import Claim, load_claims
from gptlab.book.reproduce.lab import Lab
from gptlab.book.reproduce.run_claims import NEEDS, examine
from gptlab.book.reproduce.verdicts import Result
from tests.book.perturbed import (
    WRONG,
    NoBiases,
    OtherSeed,
    OtherSizes,
    OtherText,
    ShortNet,
    Small,
    TinyNoise,
    Unsteady,
    wrong_parts,
)  # fmt: skip

LABS: dict[str, Callable[[], AbstractContextManager[Lab]]] = {
    "other sizes": lambda: nullcontext(OtherSizes()),
    "no biases": lambda: nullcontext(NoBiases()),
    "another seed": lambda: nullcontext(OtherSeed()),
    "another tokenizer": lambda: nullcontext(OtherText()),
    "tiny noise": lambda: nullcontext(TinyNoise()),
    "unsteady models": lambda: nullcontext(Unsteady()),
    **{f"wrong {slot}": partial(wrong_parts, slot) for slot in WRONG},
    "a short net": lambda: nullcontext(ShortNet()),
}  # fmt: skip
EXCEPTIONS = {"LN-keepdim": "how torch's mean keeps a dimension depends on nothing that a lab could change"}


@cache
def claims() -> list[Claim]:
    return [claim for claim in load_claims() if claim.computable and not claim.note.startswith(NEEDS)]


def measured(lab: Lab, wanted: list[Claim]) -> dict[str, Result]:
    """What came out, by claim. A check that cannot cope with a wrong lab has not shown that it computes: left out."""
    found = {}
    for claim in wanted:
        with suppress(Exception):
            found[claim.id] = examine(claim, lab)
    lab.close()
    return found


@pytest.mark.slow
def test_every_check_computes() -> None:
    flipped: set[str] = set()
    differing = {claim.id for claim in claims() if claim.verdict == "differs"}
    usual = {claim.id: examine(claim, lab) for lab in [Small()] for claim in claims() if claim.id in differing}
    for make in LABS.values():
        with make() as lab:
            for id, result in measured(lab, [claim for claim in claims() if claim.id not in flipped]).items():
                if id in differing:
                    before = usual[id]
                    if (result.got, result.shows) != (before.got, before.shows):
                        flipped.add(id)
                elif result.verdict == "differs":
                    flipped.add(id)
    assert sorted({claim.id for claim in claims()} - flipped - EXCEPTIONS.keys()) == []
    assert sorted(EXCEPTIONS.keys() & flipped) == []
