"""Checks on what training adds (dropout and nothing else), and on whether the variant is another model at all."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import nn

from gptlab.check.case import Case, largest_gap, same
from gptlab.check.report import Verdict, failed, not_applicable, passed
from gptlab.config import Config, ModelConfig
from gptlab.declare.keys_read import block_parts
from gptlab.identity import delta
from gptlab.model import build
from gptlab.model.per_layer import layer_config
from gptlab.model.slots import with_dropout_sites

_SITES = ("drop_embedding", "drop_attention", "drop_shortcut", "drop_feed_forward")


def train_and_eval(case: Case) -> Verdict:
    """Eval is deterministic. Training differs from it by dropout, if some rate above 0 is read, and by nothing else."""
    inputs = case.example(2, case.short)
    plain = case.output(inputs)
    if not plain.isfinite().all():
        return not_applicable("the output is not finite")
    if not same(plain, case.output(inputs, stream="other")):
        return failed("two passes in eval mode differ: something is random there")
    one, two = (case.output(inputs, train=True, stream=name) for name in ("one", "two"))
    rates = dropout_rates(case.config.model) if case.is_gpt else {}
    if not rates:
        if not same(one, two):
            return failed("no dropout is declared, and two passes in training mode differ", largest_gap(one, two))
        if not same(one, plain):
            return failed("no dropout is declared, and training differs from eval", largest_gap(one, plain))
        return passed("deterministic; no dropout is declared, and training equals eval", 0.0)
    said = ", ".join(f"{site}={rate:g}" for site, rate in rates.items())
    if same(one, two):
        return failed(f"{said}, and nothing is random in training")
    model = build(dataclasses.replace(case.config, model=without_dropout(case.config.model)))
    model.load_state_dict(case.model.state_dict(), strict=False)  # a seed that does not hold has a line of its own
    quiet = case.output(inputs, train=True, model=model)
    if not same(quiet, case.output(inputs, model=model)):
        return failed(f"with every dropout at 0, training still differs from eval by {largest_gap(quiet, plain):.3g}")
    if not same(quiet, plain):
        return failed("dropout is at work in eval mode", largest_gap(quiet, plain))
    return passed(f"eval is deterministic; training differs from it by {said} alone", largest_gap(one, plain))


def differs(case: Case) -> Verdict:
    """What is declared differently is a different model: other parameters, or another output."""
    if case.baseline is None:
        return not_applicable("nothing to compare with")
    declared = [key for key in delta(case.baseline, case.config) if key.split(".")[0] in ("model", "rng", "seed")]
    if not declared:
        return not_applicable("this is the baseline: the model is declared the same")
    said = ", ".join(declared[:3]) + (f" and {len(declared) - 3} more" if len(declared) > 3 else "")
    base = build(case.baseline)
    found = _parameter_words(base, case.model)
    inputs = case.example(1, case.config.model.context_length)
    other: Any = None
    if _takes(case.baseline, case.config):
        ours, theirs = case.output(inputs), case.output(inputs, model=base)
        if ours.shape != theirs.shape:
            found.append(f"the output is {tuple(ours.shape)} instead of {tuple(theirs.shape)}")
        elif not same(ours, theirs):
            other = largest_gap(ours, theirs)
            found.append(f"outputs differ by up to {other:.3g}")
        elif not found:
            trained = [case.output(inputs, train=True, model=model) for model in (case.model, base)]
            if not same(*trained):
                found.append("outputs differ in training alone")
            losses = [case.gradients(model)[0] for model in (case.model, base)]
            if not found and losses[0] != losses[1]:
                found.append(f"outputs are equal, and what training differentiates is {losses[0] - losses[1]:+.3g}")
    else:
        found.append("the inputs are others")
    if not found:
        return failed(f"{said} is declared, and parameters and outputs are the baseline's, bit for bit", 0.0)
    return passed(f"{said}: {'; '.join(found)}", other)


def dropout_rates(model: ModelConfig) -> dict[str, float]:
    """Site -> largest rate, for each dropout above 0 that some part of the model reads."""
    rates: dict[str, float] = {"drop_embedding": with_dropout_sites(model).drop_embedding or 0.0}
    for layer in range(model.n_layers):
        own = with_dropout_sites(layer_config(model, layer))
        read = set().union(*(part.inputs for part in block_parts(own)))
        for site in (*_SITES[1:], "drop_rate"):
            if site in read:
                rates[site] = max(rates.get(site, 0.0), getattr(own, site) or 0.0)
    return {site: rate for site, rate in rates.items() if rate > 0}


def without_dropout(model: ModelConfig) -> ModelConfig:
    """The same model with every dropout at 0, in each layer too."""
    sites = dict.fromkeys(_SITES)
    layers = {
        span: {key: value for key, value in settings.items() if not key.startswith("drop_")}
        for span, settings in model.layers.items()
    }
    return dataclasses.replace(model, drop_rate=0.0, layers=layers, **sites)  # type: ignore[arg-type]


def _parameter_words(base: nn.Module, model: nn.Module) -> list[str]:
    before, after = dict(base.named_parameters()), dict(model.named_parameters())
    words = []
    if len(before) != len(after) or before.keys() != after.keys():
        words.append(f"tensors: {len(after.keys() - before.keys())} new, {len(before.keys() - after.keys())} gone")
    sizes = [sum(p.numel() for p in parameters.values()) for parameters in (before, after)]
    if sizes[0] != sizes[1]:
        words.append(f"{sizes[1] - sizes[0]:+,} parameters")
    moved = sum(not same(before[name], after[name]) for name in before.keys() & after.keys())
    return [*words, f"{moved} tensors have other values"] if moved else words


def _takes(one: Config, two: Config) -> bool:
    """Whether both models take the same inputs."""
    a, b = one.model, two.model
    return (a.architecture, a.context_length, a.vocab_size) == (b.architecture, b.context_length, b.vocab_size) and (
        (a.layer_sizes or [0])[0] == (b.layer_sizes or [0])[0]
    )
