"""What became of a training, in one word, and what its first loss should have been."""

from __future__ import annotations

import math

import torch

from gptlab.config import ModelConfig
from gptlab.model import GPT
from gptlab.model.block import PLACEMENTS

LEAK = 0.01  # nats per token below the floor: more than validation rows vary by once a model is near it
COLLAPSE = 0.01  # share of the unigram entropy


def classify(
    final_loss: float, initial_loss: float, *, excess: float | None = None, unigram: float | None = None
) -> str:
    """One of four words, the first that fits; losses are means over validation tokens in nats.

    diverged   the loss is not finite, or above what it was before training
    leaked     below the entropy of the language: no causal model can be, so a mask lets the future through
    collapsed  within 1% of the unigram entropy: the model has learned how often each token occurs and nothing else
               (not said of data in which there is nothing else: a floor that is the unigram entropy)
    ok         none of these

    `excess`: final_loss minus the floor, where the floor is known; `unigram`: the unigram entropy.
    """
    if not math.isfinite(final_loss) or final_loss > initial_loss:
        return "diverged"
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
    variance = config.emb_dim * float(model.out_head.weight.double().square().mean())
    return math.log(config.vocab_size) + variance / 2
