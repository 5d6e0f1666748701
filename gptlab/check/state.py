"""Checks on what may be remembered: nothing from call to call, and while decoding all that one pass would have seen."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gptlab import streams
from gptlab.check.case import Case, largest_gap, same
from gptlab.check.report import Verdict, failed, not_applicable, passed
from gptlab.errors import GptlabError
from gptlab.model import GPT
from gptlab.model.decoding import Decoding
from gptlab.probes.hooks import untouched

_ROUNDING = 1e-4  # of the largest logit: other shapes, other order of sums


def no_state(case: Case) -> Verdict:
    """What is computed hangs on the arguments alone: whatever else goes through the model before, or in between.

    A tensor that one layer leaves in a global, for a later one to find, is another batch's once that has passed.
    """
    inputs, others = case.example(2, case.short), case.example(2, case.short, "others")
    first = case.output(inputs)
    case.output(others)
    again = case.output(inputs)
    if not same(first, again):
        gap = largest_gap(first, again)
        return failed(f"after another batch, the same one gives outputs that differ by {gap:.3g}: a call is kept", gap)
    interrupted = _interrupted(case, inputs, others)
    if not same(first, interrupted):
        gap = largest_gap(first, interrupted)
        return failed(
            f"when another batch passes between two layers, outputs differ by {gap:.3g}: tensors reach later layers by "
            "another way than arguments and results",
            gap,
        )
    return passed("the same bits, whatever passes before or between the layers", 0.0)


def _interrupted(case: Case, inputs: Tensor, others: Tensor) -> Tensor:
    """The output for `inputs`, with a pass of `others` before each layer and each branch."""
    model, busy = case.model, False

    def interrupt(_module: nn.Module, _inputs: Any) -> None:
        nonlocal busy
        if not busy:
            busy = True
            try:
                with streams.forked(0, "check", "interrupting"):
                    model(others)
            finally:
                busy = False

    with untouched(model) as handles:
        for module in {*model.stream_layers(), *(branch.inner for branch in model.branches())}:
            handles.append(module.register_forward_pre_hook(interrupt))
        return case.output(inputs)


def decoding(case: Case) -> Verdict:
    """Token by token, in pieces, with rows reordered or joined, and after going back: the logits of one pass."""
    model = case.model
    if not isinstance(model, GPT):
        return not_applicable("architecture=deep_mlp has no tokens")
    tokens = case.example(2, case.short)
    whole = case.output(tokens)
    if not whole.isfinite().all():
        return not_applicable("the output is not finite")
    allowed = _ROUNDING * max(1.0, whole.abs().max().item())
    try:
        with untouched(model), torch.no_grad():
            gaps = {}
            for how, size in (("token by token", 1), ("three tokens at a time", 3)):
                found, _ = _decoded(model, tokens, model.start_decoding(len(tokens)), size)
                gaps[how] = largest_gap(whole, found)
            gaps["with rows reordered"] = _reordered(model, tokens, whole)
            gaps["with rows joined"] = _joined(model, tokens, whole)
            back = _gone_back(model, tokens, whole)
    except GptlabError as error:
        return not_applicable(str(error).rstrip("."))
    gaps |= {"after going back": back} if back is not None else {}
    for how, gap in gaps.items():
        if not gap <= allowed:
            return failed(f"{how}, logits differ from those of one pass by {gap:.3g}", gap)
    said = "" if back is not None else "; it cannot go back"
    return passed(f"equal to one pass up to {max(gaps.values()):.2g}{said}", max(gaps.values()))


def _decoded(model: GPT, tokens: Tensor, state: Decoding, size: int) -> tuple[Tensor, Decoding]:
    logits = []
    for piece in tokens.split(size, dim=1):
        output = model.run(piece, state)
        assert output.decoding is not None
        state = output.decoding
        logits.append(model.out_head(output.features))
    return torch.cat(logits, dim=1), state


def _reordered(model: GPT, tokens: Tensor, whole: Tensor) -> float:
    """Half of the tokens, the rows swapped, the other half."""
    half, rows = tokens.shape[1] // 2, torch.arange(len(tokens)).flip(0)
    if not half:
        return 0.0
    _, state = _decoded(model, tokens[:, :half], model.start_decoding(len(tokens)), half)
    found, _ = _decoded(model, tokens[rows, half:], state.reordered(rows), 1)
    return largest_gap(whole[rows, half:], found)


def _joined(model: GPT, tokens: Tensor, whole: Tensor) -> float:
    """Half of the tokens, the rows apart, one token by token and one at once; the other half together."""
    half = tokens.shape[1] // 2
    if not half:
        return 0.0
    _, state = _decoded(model, tokens[:1, :half], model.start_decoding(1), 1)
    _, other = _decoded(model, tokens[1:, :half], model.start_decoding(len(tokens) - 1), half)
    return largest_gap(whole[:, half:], _decoded(model, tokens[:, half:], state.joined(other), 1)[0])


def _gone_back(model: GPT, tokens: Tensor, whole: Tensor) -> float | None:
    """All tokens, back to half of them, and the rest again; None where a part forgets."""
    half = tokens.shape[1] // 2
    other = torch.cat((tokens[:, :half], tokens[:, half:].flip(1)), dim=1)  # what comes after is to be forgotten
    _, state = _decoded(model, other, model.start_decoding(len(tokens)), tokens.shape[1])
    try:
        state = state.cropped(half)
    except GptlabError:
        return None
    return largest_gap(whole[:, half:], _decoded(model, tokens[:, half:], state, 1)[0])
