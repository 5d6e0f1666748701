"""What became of a training, in one word, and what its first loss should have been."""

from __future__ import annotations

import math

import torch

from gptlab.config import ModelConfig
from gptlab.model import GPT
from gptlab.model.block import PLACEMENTS
from gptlab.model.heads import BentHead

LEAK = 0.01  # nats per token below the floor: more than validation rows vary by once a model is near it
COLLAPSE = 0.01  # share of the unigram entropy
ROUNDING = 1e-5  # of a loss: what float32 makes of it in another order of sums
SPREAD = 2.0  # standard errors that a difference must exceed before it gets a word
DIVERGED = "diverged"


def classify(
    final_loss: float,
    initial_loss: float,
    *,
    rise_error: float | None = None,
    excess: float | None = None,
    unigram: float | None = None,
) -> str:
    """One of five words, the first that fits; losses are means over validation tokens in nats.

    diverged       the loss is not finite, or clearly above what it was before training
    did not learn  neither clearly above nor clearly below it
    leaked         below the entropy of the language: no causal model can be, so a mask lets the future through
    collapsed      within 1% of the unigram entropy: the model has learned how often each token occurs and nothing else
                   (not said of data in which there is nothing else: a floor that is the unigram entropy)
    ok             none of these

    Clearly: by more than two standard errors of the difference over documents, and more than sums are rounded by.
    `rise_error`: that standard error, where it is known; `excess`: final_loss minus the floor, where that is known;
    `unigram`: the unigram entropy.
    """
    margin = max(SPREAD * (rise_error or 0.0), ROUNDING * abs(initial_loss))
    if not math.isfinite(final_loss) or final_loss > initial_loss + margin:
        return DIVERGED
    nothing_to_learn = excess is not None and initial_loss - (final_loss - excess) <= COLLAPSE * initial_loss
    if final_loss >= initial_loss - margin and not nothing_to_learn:
        return "did not learn"
    if excess is not None and excess < -LEAK:
        return "leaked"
    if unigram is not None and abs(final_loss - unigram) <= COLLAPSE * unigram:
        nothing_else = excess is not None and unigram - (final_loss - excess) <= COLLAPSE * unigram
        return "ok" if nothing_else else "collapsed"
    return "ok"


@torch.no_grad()
def expected_initial_loss(model: GPT, config: ModelConfig) -> float | None:
    """ln V + s^2/2 in nats, for logits of s.d. s that know nothing of the target. None where s has no closed form.

    A norm at the end gives every token a root mean square of 1, so s^2 = emb_dim * variance of the head's weights. It
    does not hold where the stream still carries the token's own embedding and the head is tied to the table.
    """
    place = PLACEMENTS[config.norm_placement]
    normed = (place.final or (place.after and config.n_layers > 0)) and config.norm in ("layernorm", "rmsnorm")
    if not normed:
        return None
    head = model.out_head
    if isinstance(head, BentHead) and head.softcap is not None:
        return None
    scale = head.scale if isinstance(head, BentHead) else 1.0
    variance = config.emb_dim * scale**2 * float(head.weight.double().square().mean())
    return math.log(config.vocab_size) + variance / 2
