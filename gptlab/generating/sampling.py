"""Which token comes next: the most likely one, or one that is drawn.

The rules follow each other as in other libraries: repetition penalty, temperature, top-k, top-p, min-p. A draw is the
largest of logit + Gumbel noise, one number for each token of the vocabulary, so that two variants with the same noise
differ in a token only where their distributions do.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gptlab import streams
from gptlab.config import GenerationProbe


class Chooser:
    """Chooses the tokens of one text, with random numbers of its own: they follow from `seed` and the prompt.

    `repeat` counts equal prompts, which are to go on differently.
    """

    def __init__(self, how: GenerationProbe, seed: int, prompt_ids: list[int], repeat: int = 0) -> None:
        self.how = how
        self.noise = streams.generator(seed, "sampling", repeat, *prompt_ids)

    def choose(self, logits: Tensor, ids: list[int]) -> int:
        """The next id, for finite logits (vocab_size,) in fp32 on the CPU after `ids`."""
        allowed = filtered(logits, ids, self.how)
        if self.how.temperature == 0:
            return int(allowed.argmax())
        waits = torch.empty_like(allowed).exponential_(generator=self.noise)
        return int((allowed - waits.clamp_min_(torch.finfo(waits.dtype).tiny).log_()).argmax())


def filtered(logits: Tensor, ids: list[int], how: GenerationProbe) -> Tensor:
    """The logits (vocab_size,) after all rules, -inf for tokens that are out.

    The penalty (Keskar et al. 2019) divides positive logits of tokens that occur in `ids`, and multiplies negative
    ones. top_p keeps the fewest most likely tokens that have the probability p together (Holtzman et al. 2020), min_p
    those with at least p times the largest probability (Nguyen et al. 2024).
    """
    if how.repetition_penalty != 1:
        seen = torch.tensor(sorted(set(ids)))
        before = logits[seen]
        penalised = torch.where(before > 0, before / how.repetition_penalty, before * how.repetition_penalty)
        logits = logits.index_copy(0, seen, penalised)
    if how.temperature == 0:
        return logits
    logits = logits / how.temperature
    if how.top_k is not None and how.top_k < len(logits):
        logits = logits.masked_fill(logits < logits.topk(how.top_k).values[-1], -torch.inf)
    if how.top_p is not None and how.top_p < 1:
        shares, order = logits.softmax(-1).sort(descending=True)
        before = shares.cumsum(-1) - shares  # what the more likely ones have together
        logits = logits.index_fill(0, order[before >= how.top_p], -torch.inf)
    if how.min_p is not None:
        shares = logits.softmax(-1)
        logits = logits.masked_fill(shares < how.min_p * shares.max(), -torch.inf)
    return logits
