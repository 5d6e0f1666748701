"""What a training finds on its way, and what it brings back at the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from gptlab.config import TrainConfig
from gptlab.data.batches import TokenSource
from gptlab.probes import Measurement
from gptlab.training.budget import Spent
from gptlab.training.evaluate import Evaluation, Rows, Scores, standard_error
from gptlab.training.outcome import classify


@dataclass
class Trained(Measurement):
    """A measurement with what became of the training, and the files that it wrote by itself.

    `reason`: why, where the outcome needs a word more; `files`: names in the run's folder; `artifacts`: SHA-256 of
    those that lie deeper; `scored`: on which rows.
    """

    outcome: str = "ok"
    reason: str = ""
    scored: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    artifacts: dict[str, str] = field(default_factory=dict)


class Step(NamedTuple):
    """What one update leaves to be read: loss of its batch, norm of its gradient before clipping, learning rate.

    `auxiliary`: by name, what parts of the model added to the loss, as they weighted it, a mean over micro-batches.
    """

    loss: Tensor
    norm: Tensor
    rate: float
    auxiliary: Mapping[str, Tensor]


@dataclass
class Found:
    """What a run has found so far. All of it goes into a checkpoint, as JSON."""

    spent: Spent = field(default_factory=Spent)
    evaluations: list[Evaluation] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    before: list[float] = field(default_factory=list)  # validation loss of each document before training
    loss: float = math.nan  # of the last training batch that was looked at
    auxiliary: dict[str, float] = field(default_factory=dict)  # metric -> auxiliary loss of that batch
    finite: bool = True
    broke_at: int | None = None  # the first step whose loss, gradient or weights were not finite

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Found:
        evaluations = [Evaluation(**evaluation) for evaluation in saved["evaluations"]]
        spent, loss = Spent(**saved["spent"]), float(saved["loss"])  # which may be the text "nan"
        return cls(**{**saved, "spent": spent, "evaluations": evaluations, "loss": loss})

    def best(self) -> Evaluation | None:
        """The evaluation after the start with the lowest loss, the first of equals."""
        finite = [e for e in self.evaluations[1:] if math.isfinite(e.loss)]
        return min(finite, key=lambda e: e.loss, default=None)

    def outcome(self, train: TrainConfig, source: TokenSource, context: int) -> tuple[str, dict[str, float | int]]:
        """(what became of it, the numbers of result.json): see docs/training.md for each."""
        used = (self.evaluations[1:] or self.evaluations)[-train.average_last :]
        averaged = (
            _mean([e.loss for e in used]),
            _mean([e.excess for e in used]),
            _mean([e.causal_loss for e in used]),
        )
        # A run that broke off has no final numbers, whatever it was like before.
        final, excess, causal = (v if self.finite or v is None else math.nan for v in averaged)
        assert final is not None
        initial, unigram, spent = self.evaluations[0].loss, source.unigram(context), self.spent
        best = self.best()
        metrics: dict[str, float | int | None] = {
            "final_loss": final,
            "final_excess": excess,
            "final_causal_loss": causal,
            "best_loss": best.loss if best else None,
            "best_step": best.step if best else None,
            "initial_loss": initial,
            "entropy_floor": source.entropy.mean(context) if source.entropy else None,
            "unigram_entropy": unigram,
            "steps": spent.step,
            "tokens": spent.tokens,
            "training_flops": spent.flops if math.isfinite(spent.flops) else None,
            "train_seconds": spent.seconds,
            "tokens_per_second": spent.tokens / spent.seconds if spent.seconds else None,
            **self.auxiliary,
        }
        word = classify(final, initial, rise_error=used[-1].rise_error, excess=excess, unigram=unigram)
        return word, {name: value for name, value in metrics.items() if value is not None}


def of_held_out(rows: Rows, scores: Scores, source: TokenSource) -> dict[str, float | int]:
    """The numbers of result.json that the pass over the held-out part gives."""
    size = rows.bytes_per_target(source)
    sampled = (
        source.held_out() is not None or rows.share is None
    )  # else all there is was scored: nothing is left to luck
    metrics: dict[str, float | int | None] = {
        "heldout_loss": scores.loss,
        "heldout_error": standard_error(scores.losses, scores.shares) if sampled else None,
        "heldout_bits_per_byte": scores.loss / math.log(2) / size if size else None,
    }
    return {name: value for name, value in metrics.items() if value is not None}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
