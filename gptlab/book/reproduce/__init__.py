"""Every published number that gptlab grew from: what was printed, what comes out here, and whether they agree.

    results = reproduce(["counting", "gelu"])

Claims are data (`claims.csv`). Each has one check, a small function that measures its value with gptlab's own models,
parts, probes and tokenizer.
"""

from __future__ import annotations

from gptlab.book.reproduce.claims import Claim, groups_of, load_claims
from gptlab.book.reproduce.run_claims import reproduce
from gptlab.book.reproduce.verdicts import Result, Verdict

__all__ = ["Claim", "Result", "Verdict", "groups_of", "load_claims", "reproduce"]
