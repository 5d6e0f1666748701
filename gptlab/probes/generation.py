"""Probe `generation`: what the model says after a prompt, and how close each choice was."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from gptlab.data.text import encode_prompt
from gptlab.generating.continuing import NOT_FINITE, continued
from gptlab.generating.writing import Writer
from gptlab.probes.subject import Measurement, Subject
from gptlab.registry import register


@dataclass(frozen=True)
class Continuation:
    """The chosen ids, and for each the logit difference between the best and the second best."""

    ids: list[int]
    margins: list[float]


@register("probe", "generation", needs_tokens=True)
def measure(subject: Subject) -> Measurement:
    """What the model makes of a prompt: greedily, or drawn from a stream that follows from the run's seed.

    Document `generation`: prompt, ids, text and margins.
    """
    config, tokenizer = subject.config, subject.source.tokenizer
    probe = config.probes.generation
    assert probe is not None and tokenizer is not None
    prompt_ids = encode_prompt(tokenizer, probe.prompt, config.model.vocab_size)
    writer = Writer(tokenizer, prompt_ids, probe.stop)
    rows, _ = continued(
        subject.model, [prompt_ids], probe, context_length=config.model.context_length, seed=config.seed,
        ends=lambda number, row: writer.stops_at(row.new),
    )  # fmt: skip
    chosen = rows[0]
    document = {
        "prompt": probe.prompt,
        "prompt_ids": prompt_ids,
        "token_ids": chosen.new,
        "margins": chosen.margins,
        "text": tokenizer.decode(chosen.ids),
        "new_text": tokenizer.decode(chosen.new),
        "tokens": [tokenizer.decode([token]) for token in chosen.new],
    }
    found = Measurement(documents={"generation": document})
    if chosen.stopped == NOT_FINITE:
        found.warnings.append(f"generation stopped after {len(chosen.new)} tokens: the logits are not finite")
    return found


@torch.no_grad()
def greedy(model: nn.Module, prompt_ids: list[int], max_new_tokens: int, context_length: int) -> Continuation:
    """Append the most likely token `max_new_tokens` times; the model sees the last `context_length` tokens.

    The book's loop, which computes every token anew for the next one; `gptlab.generating` does it once. Stops early
    where the logits are not finite.
    """
    ids, margins = list(prompt_ids), []
    for _ in range(max_new_tokens):
        logits = model(torch.tensor([ids[-context_length:]]))[0, -1]  # (vocab_size,)
        if not torch.isfinite(logits).all():
            break
        best = torch.topk(logits, min(2, logits.numel()))
        margins.append((best.values[0] - best.values[-1]).item())
        ids.append(int(logits.argmax()))
    return Continuation(ids[len(prompt_ids) :], margins)
