"""Checks on whether the variant can learn: finite numbers, gradients everywhere, a sane first loss."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterable

import torch
from torch import Tensor

from gptlab import streams
from gptlab.check.case import Case, largest_gap
from gptlab.check.report import Verdict, failed, not_applicable, passed
from gptlab.probes.activations import of_logits


def finite(case: Case) -> Verdict:
    """Loss and gradients are finite."""
    loss, gradients = case.gradients(case.model)
    if not math.isfinite(loss):
        return failed(f"the loss is {loss}", loss)
    bad = [name for name, gradient in gradients.items() if gradient is not None and not gradient.isfinite().all()]
    if bad:
        return failed(f"no finite gradient: {_some(bad)}", len(bad))
    return passed(f"loss {loss:.4g} and all gradients", loss)


def every_parameter(case: Case) -> Verdict:
    """Every parameter gets a gradient. One that is zero only at the start (behind a scale of 0) counts as reached."""
    _, gradients = case.gradients(case.model)
    if not gradients:
        return not_applicable("no trainable parameters")
    unused = [name for name, gradient in gradients.items() if gradient is None]
    if unused:
        return failed(f"not part of the output: {_some(unused)}", len(unused))
    silent = _silent(gradients)
    if silent:
        moved = copy.deepcopy(case.model)
        with torch.no_grad():
            for name, parameter in moved.named_parameters():
                noise = torch.randn(parameter.shape, generator=streams.generator(0, "check", name))
                parameter.add_(0.02 * noise)
        dead = _silent(case.gradients(moved)[1])
        if dead:
            return failed(f"no gradient, at the start and beside it: {_some(dead)}", len(dead))
    start = f" ({len(silent)} only once training has moved the others)" if silent else ""
    return passed(f"all {len(gradients)} tensors are reached{start}", len(gradients))


def initial_loss(case: Case) -> Verdict:
    """Against random targets: ln V + s^2/2 for logits with s.d. s, and s small enough to start near ln V."""
    if not case.is_gpt:
        return not_applicable("squared error has no such closed form")
    inputs = case.example(4, case.short)
    logits = case.output(inputs)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), case.example(4, case.short, "targets").flatten())
    uniform, s = math.log(case.config.model.vocab_size), of_logits(logits)["logit_std"]
    expected, tolerance = uniform + s**2 / 2, max(0.5, 0.1 * uniform)
    # Said, because a run reports another number: the one on its data, where a text's frequent tokens weigh more.
    closed = f"ln V = {uniform:.4g}, ln V + s^2/2 = {expected:.4g} for logits with s.d. {s:.3g}"
    words = f"loss {loss:.4g} on random tokens; {closed}"
    near = abs(loss.item() - expected) <= tolerance and s**2 / 2 <= tolerance
    if not near:
        return failed(f"{words}: is the initial scale right?", loss.item())
    return passed(words, loss.item())


def autocast(case: Case) -> Verdict:
    """Under bf16 autocast the output is finite."""
    inputs = case.example(2, case.short)
    exact = case.output(inputs)
    if not exact.isfinite().all():
        return not_applicable("not finite in float32 either")
    with torch.autocast("cpu", torch.bfloat16), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch tells that it takes a slower kernel
        rounded = case.output(inputs)
    if not rounded.isfinite().all():
        return failed(f"{int((~rounded.isfinite()).sum())} outputs are not finite")
    gap = largest_gap(exact, rounded)
    return passed(f"finite; outputs differ by up to {gap:.2g}", gap)


def _silent(gradients: dict[str, Tensor | None]) -> list[str]:
    """The tensors without a gradient. In a matrix, what is zero on paper is rounding of the others on some processors.

    Not so in a vector: a key's bias shifts all logits of a row; the softmax takes that away.
    """
    sizes = {name: float(gradient.abs().max()) for name, gradient in gradients.items() if gradient is not None}
    rounding = torch.finfo(torch.float32).eps * max(sizes.values(), default=0.0)
    matrices = {name for name, gradient in gradients.items() if gradient is not None and gradient.dim() >= 2}
    return [name for name, size in sizes.items() if size <= (rounding if name in matrices else 0.0)]


def _some(names: Iterable[str], most: int = 4) -> str:
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
