"""Whether two variants may be compared at all: same data, same training, same code, same machine.

What makes a difference meaningless is a reason (the verdict is `not comparable`); what may only blur it is a flag.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gptlab.metrics import Metric
from gptlab.store.records import Record

CAUSAL = "model.causal"
CAUSAL_LOSSES = ("causal_loss", "final_causal_loss")  # of a model without a mask when it is used with one: a fair loss
BUDGET_KEYS = ("train",)  # a variant that changes nothing else asks what the budget does
TOKEN_KEYS = ("data.tokenizer",)
POOR = ("did not learn", "collapsed")  # outcomes that a reader has to know: they are numbers like any other
OTHER = "other "  # how a flag begins that tells of pairs made differently
MATCHED = 0.02  # training FLOPs within 2 %: a compute-matched pair


@dataclass(frozen=True)
class Findings:
    """Reasons by what they touch, and flags for everybody."""

    data: str = ""
    rows: str = ""  # other validation rows
    heldout: str = ""  # other rows at the end
    training: str = ""
    leaked: str = ""
    machine: str = ""
    flags: tuple[str, ...] = ()

    def reason(self, metric: Metric, step: int | None = None) -> str:
        """Why a difference in `metric` means nothing; empty when it does mean something."""
        if metric.kind == "timing":
            return self.machine
        if metric.unit != "nats/token" and not metric.trained:
            return self.data
        # At one and the same step of both, the budgets do not matter.
        training = self.training if metric.trained and step is None else ""
        leaked = self.leaked if metric.trained and metric.name not in CAUSAL_LOSSES else ""
        rows = self.heldout if metric.name.startswith("heldout_") else self.rows
        return self.data or (rows if _is_scored(metric) else "") or leaked or training


def _is_scored(metric: Metric) -> bool:
    """Whether validation rows decide it."""
    return (metric.trained and metric.name != "train_loss") or metric.name == "initial_loss"


def check(pairs: Sequence[tuple[Record, Record]], delta: Mapping[str, tuple[Any, Any]]) -> Findings:
    """Look at the runs of a variant beside those of its baseline, seed by seed: (variant's, baseline's)."""
    if not pairs:
        return Findings()
    hosts = _differing(pairs, lambda r: r.provenance.host)
    threads = _differing(pairs, lambda r: r.provenance.threads)
    data = _differing(pairs, lambda r: r.provenance.data)
    flags = []
    for what, found in (
        ("code", _differing(pairs, lambda r: r.provenance.code)),
        ("versions", _differing(pairs, lambda r: r.provenance.environment)),
        ("host", hosts),
        ("number of threads", threads),
        ("kernels", _differing(pairs, lambda r: r.provenance.kernels)),
    ):
        if found:
            flags.append(f"{OTHER}{what} than the baseline's: {found}")
    # A training that diverged was ended early, by its own outcome: that is no unequal budget.
    training, flag = _training([p for p in pairs if p[0].state == p[1].state == "finished"], delta)
    sides = (("the variant", 0), ("the baseline", 1))
    leaked = [who for who, side in sides if any(p[side].outcome == "leaked" for p in pairs)]
    # Where no entropy is known, no loss tells of a leak; the config does.
    seeing = [who for who, side in sides if CAUSAL in delta and delta[CAUSAL][1 - side] is False]
    for outcome in POOR:
        seeds = [str(own.run.seed) for own, _ in pairs if own.outcome == outcome]
        if seeds:
            flags.append(f"{outcome}: seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}")
    rows = _differing(pairs, lambda r: r.provenance.validation)
    heldout = _differing(pairs, lambda r: r.provenance.heldout)
    tokens = next((key for key in TOKEN_KEYS if key in delta), "")
    return Findings(
        data="other data" if data else f"other {tokens}" if tokens else "",
        rows="other validation rows" if rows else "",
        heldout="other held-out rows" if heldout else "",
        training=training,
        leaked=f"{' and '.join(leaked)} leaked" if leaked else f"{seeing[0]} sees the future" if seeing else "",
        machine="other hosts" if hosts else "other number of threads" if threads else "",
        flags=(*flags, *([flag] if flag else [])),
    )


def _training(pairs: Sequence[tuple[Record, Record]], delta: Mapping[str, tuple[Any, Any]]) -> tuple[str, str]:
    """(reason, flag) for unequal budgets. Equal compute is a fair budget too, and so is one that was asked about."""
    for name in ("steps", "tokens"):
        for own, base in pairs:
            mine, its = own.metrics.get(name), base.metrics.get(name)
            if mine is None or its is None or mine == its:
                continue
            words = f"{mine:,.0f} {name}, baseline {its:,.0f}"
            spent = [_compute(record) for record in (own, base)]
            if spent[0] and spent[1] and abs(spent[0] / spent[1] - 1) <= MATCHED:
                return "", f"matched in compute: {words}"
            if own.provenance.seconds and own.provenance.seconds == base.provenance.seconds:
                return "", f"matched in time: {words} (seed {own.run.seed})"
            if delta and all(key.split(".")[0] in BUDGET_KEYS for key in delta):
                return "", f"other budget: {words}"
            return words, ""
    return "", ""


def _compute(record: Record) -> float | None:
    flops, tokens = record.metrics.get("flops_training_per_token"), record.metrics.get("tokens")
    return flops * tokens if flops and tokens else None


def _differing(pairs: Sequence[tuple[Record, Record]], fact: Callable[[Record], str]) -> str:
    """`x, baseline y (seeds 1, 2)` for the pairs in which a recorded fact differs; empty when none does."""
    found = [(own.run.seed, fact(own), fact(base)) for own, base in pairs if own.provenance is not base.provenance]
    found = [(seed, mine, its) for seed, mine, its in found if mine and its and mine != its]
    if not found:
        return ""
    seeds = ", ".join(str(seed) for seed, _, _ in found[:5]) + (", ..." if len(found) > 5 else "")
    which = "" if len(found) == len(pairs) else f" (seed{'s' if len(found) > 1 else ''} {seeds})"
    return f"{found[0][1]}, baseline {found[0][2]}{which}"
