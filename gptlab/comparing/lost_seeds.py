"""What became of the planned pairs that have no number: still to come, or lost for good, and how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from gptlab.comparing.comparison import TO_COME
from gptlab.store.records import Record

LOST = ("diverged", "failed", "damaged")  # states in which a run stays


def of_pairs(
    own: Mapping[int, Record], base: Mapping[int, Record], found: Collection[int], metric: str
) -> dict[str, int]:
    """Word -> seeds, for the seeds planned for both that are not in `found`. A baseline's loss says that it is one.

    A diverged training has numbers too, where they are finite; only what it lacks is lost.
    """
    without = [seed for seed in own if seed in base and seed not in found]
    if not without:  # as nearly always
        return {}
    return dict(Counter(_both(_word(own[seed], metric), _word(base[seed], metric)) for seed in sorted(without)))


def _both(mine: str, its: str) -> str:
    if TO_COME in (mine, its):
        return TO_COME
    return mine or f"baseline {its or 'not measured'}"


def _word(run: Record, metric: str) -> str:
    """Why this run may have no number; empty where it has one, as far as is known."""
    if run.state in LOST:
        return run.state if run.state != "diverged" or metric not in run.metrics else ""
    if run.state != "finished":
        return TO_COME
    if metric in run.not_finite:
        return "not finite"
    return "" if metric in run.metrics else "not measured"
