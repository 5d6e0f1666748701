"""Prompts in, their continuations out: one batch, each text as it would go on alone."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from gptlab.config import GenerationProbe
from gptlab.generating.sampling import Chooser
from gptlab.generating.stepping import Row, Stepper

LENGTH, STOP, NOT_FINITE = "length", "stop", "not finite"  # why a text ends


@torch.no_grad()
def continued(
    model: nn.Module,
    prompts: Sequence[list[int]],
    how: GenerationProbe,
    *,
    context_length: int,
    seed: int,
    cache: bool = True,
    ends: Callable[[int, Row], bool] = lambda number, row: False,
) -> tuple[list[Row], str]:
    """A row for each prompt, of token ids, with up to `how.max_new_tokens` more; and why nothing was remembered, if so.

    `ends` is called with the number of a row and the row after each of its tokens: whether it ends here. A row ends too
    where its logits are not finite. The model is put into eval mode for as long as this takes.
    """
    rows = [Row(list(ids), len(ids)) for ids in prompts]
    seen: Counter[tuple[int, ...]] = Counter()
    choosers = {}
    for row in rows:
        choosers[row] = Chooser(how, seed, row.ids, seen[tuple(row.ids)])
        seen[tuple(row.ids)] += 1
    numbers = {row: number for number, row in enumerate(rows)}
    with _evaluating(model):
        longest = max((len(row.ids) for row in rows), default=0) + how.max_new_tokens
        stepper = Stepper(model, context_length, longest, cache)
        while turn := stepper.next_rows(rows):
            for row, logits in zip(turn, stepper.logits(turn), strict=True):
                if not logits.isfinite().all():
                    row.stopped = NOT_FINITE
                    continue
                best = torch.topk(logits, min(2, logits.numel())).values
                row.margins.append((best[0] - best[-1]).item())
                row.ids.append(choosers[row].choose(logits, row.ids))
                if ends(numbers[row], row):
                    row.stopped = STOP
                elif len(row.new) == how.max_new_tokens:
                    row.stopped = LENGTH
    return rows, stepper.why_not


def in_precision(model: nn.Module, precision: str) -> nn.Module:
    """The model itself, or a copy with its weights in bf16: rounded once, not at each token."""
    return model if precision == "fp32" else copy.deepcopy(model).to(torch.bfloat16)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
