"""Which function measures which claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from gptlab.book.reproduce.claims import Claim
from gptlab.errors import GptlabError

if TYPE_CHECKING:
    from gptlab.book.reproduce.lab import Lab

Check = Callable[["Lab"], Any]  # returns the value, or a `Found` with the working
CHECKS: dict[str, Check] = {}


def check(*ids: str) -> Callable[[Check], Check]:
    """Decorator: the function measures these claims."""

    def add(function: Check) -> Check:
        for id in ids:
            _add(id, function)
        return function

    return add


def checks(cases: Mapping[str, Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function measures a claim for each id, and is given the arguments that stand behind it."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for id, given in cases.items():
            arguments = given if isinstance(given, tuple) else (given,)
            _add(id, partial(_given, function, arguments))
        return function

    return add


def _given(function: Callable[..., Any], arguments: tuple[Any, ...], lab: Lab) -> Any:
    return function(lab, *arguments)


def _add(id: str, function: Check) -> None:
    assert id not in CHECKS, f"two checks for {id}"
    CHECKS[id] = function


def match(claims: Iterable[Claim]) -> None:
    """GptlabError unless every claim that is computable has a check, and every check its claim."""
    wanted = {claim.id for claim in claims if claim.computable}
    others = {claim.id for claim in claims if not claim.computable}
    for ids, words in (
        (wanted - CHECKS.keys(), "has no check"),
        (CHECKS.keys() & others, "has a check, but its verdict is 'not computable here'"),
        (CHECKS.keys() - wanted - others, "has a check, but is no claim"),
    ):
        if ids:
            raise GptlabError(
                f"claims.csv: {', '.join(sorted(ids))} {words}.", code="claims-not-measured", ids=sorted(ids)
            )
