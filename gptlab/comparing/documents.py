"""The interval over documents: whether a difference in the held-out loss would hold on other texts of the same kind.

Seeds say how much luck is in the training, documents how much is in the test. Each run scores the same documents, so
the differences are paired by document, after the mean over the seeds that both variants have.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from gptlab.comparing.statistics import t_quantile
from gptlab.store.damage import DamagedError
from gptlab.store.records import Record
from gptlab.store.run_tables import Heldout, read_heldout

METRIC = "heldout_loss"


class OverDocuments(NamedTuple):
    """95 % t interval of the difference, over `n` documents."""

    n: int
    low: float
    high: float


def over_documents(
    runs: Mapping[int, Record], base: Mapping[int, Record], seeds: Collection[int]
) -> OverDocuments | None:
    """Of the difference of two variants, seed -> run, on the `seeds` that it is taken over.

    None where the documents of one of them are not known, or not the same.
    """
    tables = [(_read(runs[seed]), _read(base[seed])) for seed in sorted(seeds)]
    pairs = [(own, its) for own, its in tables if own and its]
    if not pairs or len(pairs) < len(tables):
        return None
    shares = {document: share for document, (share, _) in pairs[0][0].items()}
    if len(shares) < 2 or any(_shares(table) != shares for pair in pairs for table in pair):
        return None
    differences = {
        document: math.fsum(own[document][1] - its[document][1] for own, its in pairs) / len(pairs)
        for document in shares
    }
    return _interval(differences, shares)


def _interval(differences: Mapping[int, float], shares: Mapping[int, float]) -> OverDocuments | None:
    """Of a mean in which document i has share w: its variance is the sum of (w (d - mean))^2, times n / (n - 1)."""
    n = len(differences)
    middle = math.fsum(shares[document] * value for document, value in differences.items())
    squares = math.fsum((shares[document] * (value - middle)) ** 2 for document, value in differences.items())
    reach = t_quantile(n - 1) * math.sqrt(squares * n / (n - 1))
    return OverDocuments(n, middle - reach, middle + reach) if math.isfinite(reach) else None


def _read(record: Record) -> Heldout | None:
    try:
        return read_heldout(record.folder)
    except DamagedError:
        return None


def _shares(table: Heldout) -> dict[int, float]:
    return {document: share for document, (share, _) in table.items()}
