"""Probe `generation`: what the model says after a prompt, greedily, and how close each choice was."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from gptlab.data.text import encode_prompt
from gptlab.probes.subject import Measurement, Subject
from gptlab.registry import register


@dataclass(frozen=True)
class Continuation:
    """The chosen ids, and for each the logit difference between the best and the second best."""

    ids: list[int]
    margins: list[float]


@register("probe", "generation", needs_tokens=True)
def measure(subject: Subject) -> Measurement:
    """Greedy continuation of a prompt.

    Document `generation`: prompt, ids, text and margins.
    """
    config, tokenizer = subject.config, subject.source.tokenizer
    probe = config.probes.generation
    assert probe is not None and tokenizer is not None
    prompt_ids = encode_prompt(tokenizer, probe.prompt, config.model.vocab_size)
    chosen = greedy(subject.model, prompt_ids, probe.max_new_tokens, config.model.context_length)
    document = {
        "prompt": probe.prompt,
        "prompt_ids": prompt_ids,
        "token_ids": chosen.ids,
        "margins": chosen.margins,
        "text": tokenizer.decode(prompt_ids + chosen.ids),
        "new_text": tokenizer.decode(chosen.ids),
        "tokens": [tokenizer.decode([token]) for token in chosen.ids],
    }
    found = Measurement(documents={"generation": document})
    if len(chosen.ids) < probe.max_new_tokens:
        found.warnings.append(f"generation stopped after {len(chosen.ids)} tokens: the logits are not finite")
    return found


@torch.no_grad()
def greedy(model: nn.Module, prompt_ids: list[int], max_new_tokens: int, context_length: int) -> Continuation:
    """Append the most likely token `max_new_tokens` times; the model sees the last `context_length` tokens.

    Stops early where the logits are not finite.
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
