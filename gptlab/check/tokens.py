"""Checks on what may depend on what: shapes, the future, the neighbours in a batch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gptlab.check.case import Case, largest_gap, same
from gptlab.check.report import Verdict, failed, not_applicable, passed
from gptlab.model.per_layer import layer_config
from gptlab.probes.hooks import untouched


def shapes(case: Case) -> Verdict:
    """(B, T) in, (B, T, vocab_size) out, from one token to a full context; for deep_mlp (B, in) and (B, out)."""
    model = case.config.model
    full = model.context_length
    sizes = sorted({(1, 1), (2, 1), (3, case.short), (1, full)}) if case.is_gpt else [(1, 1), (5, 1)]
    for batch, length in sizes:
        where = f"B={batch}, T={length}" if case.is_gpt else f"B={batch}"
        wanted = (batch, length, model.vocab_size) if case.is_gpt else (batch, (model.layer_sizes or [0])[-1])
        try:
            output = case.output(case.example(batch, length))
        except Exception as error:
            return failed(f"at {where}: {type(error).__name__}: {error}")
        if tuple(output.shape) != wanted or not output.is_floating_point():
            return failed(f"at {where}: {tuple(output.shape)} {output.dtype} instead of {wanted}")
    said = ", ".join(f"({batch}, {length})" if case.is_gpt else f"({batch})" for batch, length in sizes)
    return passed(f"as they should be, for a batch of {said}", len(sizes))


def causality(case: Case) -> Verdict:
    """Change one token: the logits before it stay bit for bit, or in float64 up to rounding."""
    why_not = _why_not_causal(case)
    if why_not:
        return not_applicable(why_not)
    tokens = case.example(2, case.short)
    before = case.output(tokens)
    for at in sorted({1, case.short // 2, case.short - 1} - {0}):
        changed = tokens.clone()
        changed[:, at] = (changed[:, at] + 1) % case.config.model.vocab_size
        after = case.output(changed)
        before_it = (slice(None), slice(at))
        if not same(before[before_it], after[before_it]) and not case.rounds(tokens, changed, part=before_it):
            gap = largest_gap(before[:, :at], after[:, :at])
            return failed(f"token {at} was changed, and logits before it moved by {gap:.3g}: the future leaks", gap)
    return passed("logits before a changed token are the same bits", 0.0)


def causality_of_gradients(case: Case) -> Verdict:
    """d logits_i / d embedding_j = 0 for j > i: a leak too small to change a bit shows here."""
    why_not = _why_not_causal(case)
    if why_not:
        return not_applicable(why_not)
    tokens = case.example(2, case.short)
    seen: list[Tensor] = []
    with untouched(case.model) as handles, torch.enable_grad():
        handles.append(case.model.tok_emb.register_forward_hook(lambda _m, _x, y: seen.append(y)))  # type: ignore[union-attr]
        logits = case.model(tokens)
        weights = torch.linspace(-1, 1, logits.shape[-1]).sin()  # a plain sum could cancel
        for at in sorted({0, case.short // 2, case.short - 2}):
            (gradient,) = torch.autograd.grad(
                (logits[:, at] * weights).sum(), seen[0], retain_graph=True, materialize_grads=True
            )
            future = gradient[:, at + 1 :].abs().max().item()
            if not math.isfinite(future):
                return not_applicable("the gradients are not finite")
            if future != 0:
                return failed(f"logits {at} have a gradient of {future:.3g} from later tokens", future)
    return passed("no gradient from later tokens", 0.0)


def neighbours(case: Case) -> Verdict:
    """Other sequences in the batch do not matter, in eval mode and in training."""
    inputs = case.example(3, case.short)
    for train in (False, True):
        alone = case.output(inputs, train)
        for row in range(len(inputs)):  # the first has none before it, the last none behind
            others = case.example(3, case.short, "others")
            others[row] = inputs[row]
            one, two = alone[row], case.output(others, train)[row]
            if not same(one, two) and not case.rounds(inputs, others, train, row):
                gap, mode = largest_gap(one, two), "training" if train else "eval"
                return failed(f"in {mode} mode, other rows of the batch move the output by {gap:.3g}", gap)
    return passed("a row's output is the same bits whatever else is in the batch", 0.0)


def _why_not_causal(case: Case) -> str:
    model = case.config.model
    if not case.is_gpt:
        return "architecture=deep_mlp has no tokens"
    if model.context_length == 1:
        return "context_length=1 has no future"
    if not all(layer_config(model, layer).causal for layer in range(model.n_layers)):
        return "declared off: model.causal=false"
    return ""
