"""docs/errata.md: where the sources differ from what comes out, each with the computation that shows it."""

from __future__ import annotations

from collections.abc import Sequence

from gptlab.book.reproduce.claims import Claim
from gptlab.book.reproduce.rendering import published
from gptlab.book.reproduce.run_claims import NEEDS
from gptlab.book.reproduce.verdicts import Result

HEAD = """\
# Errata: where the sources differ

gptlab reruns every checkable number of the sources that it grew from ([reproduce](reproduce.md)). Nearly all come out.
These do not. Each entry says what was published, where, and the computation that shows what is true. This page is
generated, and a test compares it with what is computed:

```sh
gptlab reproduce --format errata > docs/errata.md
```
"""
TRAINED = """\
## Judged by training

These need a trained model, so the numbers depend on the budget, and are not repeated here. See them with the id:
"""


def page(results: Sequence[Result]) -> str:
    """The page, for the results of all claims."""
    differing = [result for result in results if result.verdict == "differs" and not _trained(result.claim)]
    trained = [r.claim for r in results if r.claim.verdict == "differs" and _trained(r.claim)]
    parts = [HEAD, *map(_entry, differing)]
    if trained:
        parts.append(TRAINED + "\n" + "\n".join(_line(claim) for claim in trained) + "\n")
    return "\n".join(parts)


def _trained(claim: Claim) -> bool:
    return claim.note.startswith(NEEDS)


def _entry(result: Result) -> str:
    claim = result.claim
    shows = f"{result.shows[0].upper()}{result.shows[1:]}"
    return (
        f"## {claim.id}\n\n"
        f"{claim.source[0].upper()}{claim.source[1:]}: *{claim.claim}* (published: {published(claim)}).\n\n"
        f"{shows}.\n\n"
        f"```sh\ngptlab reproduce --only {claim.id}\n```\n"
    )


def _line(claim: Claim) -> str:
    return f"- `gptlab reproduce --only {claim.id}`: *{claim.claim}* ({claim.source})"
