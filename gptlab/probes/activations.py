"""Probe `activations`: how large the stream and its branches are, what attention looks at, what is dead or collapsed.

One forward pass in eval mode. Everything is read from outside by hooks; a component that does not offer what a metric
needs has no row of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gptlab.config import ModelConfig
from gptlab.data.batches import Batch
from gptlab.model import GPT, Model
from gptlab.model.attention import ShowsLogits
from gptlab.model.branches import Branch
from gptlab.model.experts.routing import ShowsRouting
from gptlab.model.feed_forward import ShowsNonlinearities
from gptlab.model.per_layer import layer_config
from gptlab.model.slots import Parts
from gptlab.probes.hooks import in_turn, on_join, untouched
from gptlab.probes.routing import loads, of_routing
from gptlab.probes.subject import Measurement, Subject
from gptlab.registry import register

RANK_VECTORS = 256  # token vectors that effective rank and cosine look at; more would cost more than the forward pass


@register("probe", "activations")
def measure(subject: Subject) -> Measurement:
    """Sizes along the stream, what attention looks at, dead units, logits: of one batch in eval mode.

    Rows of table `layers`; metrics `logit_std` and `log_z` of a GPT.
    """
    probe = subject.config.probes.activations
    assert probe is not None and probe.context is not None
    known = subject.found_along.pop("activations", None)
    if known is not None:
        return known
    inputs = subject.source.batch(probe.batch_size, probe.context).inputs
    return _found(subject, *observe(subject.model, subject.config.model, inputs))


def watch_along(subject: Subject, batch: Batch, handles: list[RemovableHandle] | None) -> None:
    """Have another probe's next pass, over `batch` in eval mode, serve this one too, where it would make the same one.

    It is watched as long as the hooks in `handles` are there. None: it is not such a pass.
    """
    probe = subject.config.probes.activations
    if handles is None or probe is None or batch.inputs.shape[:2] != (probe.batch_size, probe.context):
        return
    watch = _watching(subject.model, subject.config.model, handles)

    def end(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        subject.found_along["activations"] = _found(subject, watch.rows, output.detach())

    handles.append(subject.model.register_forward_hook(end))


def observe(model: Model, config: ModelConfig, inputs: Tensor) -> tuple[list[dict[str, Any]], Tensor]:
    """(tidy rows, output of the model) of one forward pass. The model is left as it was."""
    with untouched(model) as handles, torch.no_grad():
        watch = _watching(model, config, handles)
        output = model(inputs)
    return watch.rows, output


def _found(subject: Subject, rows: list[dict[str, Any]], output: Tensor) -> Measurement:
    return Measurement(metrics=of_logits(output) if subject.is_gpt else {}, tables={"layers": rows})


Layers = Sequence[int | None]  # those that the calls stand for: more than one for a block that is passed again


def _watching(model: Model, config: ModelConfig, handles: list[RemovableHandle]) -> _Watch:
    watch = _Watch(handles)
    on_join(model, handles, watch.joined)
    if isinstance(model, GPT):
        _watch_gpt(watch, model, config)
    else:
        _watch_mlp(watch, model, config)
    return watch


class _Watch:
    """Collects rows, and the hooks that make them. What they compute leaves no trace in a graph."""

    def __init__(self, handles: list[RemovableHandle]) -> None:
        self.rows: list[dict[str, Any]] = []
        self.handles = handles

    def add(self, layer: int | None, part: str, values: dict[str, float]) -> None:
        for metric, value in values.items():
            self.rows.append({"step": 0, "layer": layer, "part": part, "metric": metric, "value": value})

    def inputs(self, module: nn.Module, layers: Layers, part: str, see: Callable[..., dict[str, float]]) -> None:
        """Add what `see(module, its first input)` finds, each time `module` is called."""
        turn = cycle(layers)
        hook = lambda m, x: self.add(next(turn), part, see(m, x[0]))  # noqa: E731
        self.handles.append(module.register_forward_pre_hook(torch.no_grad()(hook)))

    def attention(self, module: ShowsLogits, layers: Layers, part: str) -> None:
        """Add what `module` looks at; it is asked with what it is called with, dropout and decoding aside."""
        assert isinstance(module, nn.Module)
        turn = cycle(layers)
        hook = lambda m, x, more: self.add(next(turn), part, of_attention(m.attention_logits(*x, **more)))  # noqa: E731
        self.handles.append(module.register_forward_pre_hook(torch.no_grad()(hook), with_kwargs=True))

    def routing(self, module: ShowsRouting, layers: Layers, part: str) -> None:
        """Add where `module` sends the tokens that it is called with; each expert has a row of its own."""
        assert isinstance(module, nn.Module)
        turn = cycle(layers)

        def see(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            found, layer = module.routing(inputs[0]), next(turn)
            self.add(layer, part, of_routing(found))
            for number, load in enumerate(loads(found)):
                self.add(layer, f"{part} expert {number}", {"expert_load": load})

        self.handles.append(module.register_forward_pre_hook(torch.no_grad()(see)))

    def output(self, module: nn.Module, layers: Layers, part: str) -> None:
        turn = cycle(layers)
        hook = lambda _, x, y: self.add(next(turn), part, of_stream(y[0] if isinstance(y, tuple) else y))  # noqa: E731
        self.handles.append(module.register_forward_hook(torch.no_grad()(hook)))

    @torch.no_grad()
    def joined(self, branch: Branch, stream: Tensor, output: Tensor, after: Tensor) -> None:
        # What the branch really adds: a learned scale of zero silences it, whatever its own size.
        silent = branch.shortcut.forward(stream, torch.zeros_like(output))
        added, before = rms(after - silent), rms(stream)
        values = {"branch_rms": rms(output), "branch_ratio": added / before if before else math.nan}
        if branch.part != "all":  # a layer as a whole has its own row
            values["stream_rms"] = rms(after)
        self.add(branch.layer, branch.part, values)


def _watch_gpt(watch: _Watch, model: GPT, config: ModelConfig) -> None:
    if model.stream_layers():
        watch.inputs(model.drop_emb, [None], "embeddings", lambda _, x: of_stream(x))
    for block, layers in in_turn((block, layer) for layer, block in enumerate(model.stream_layers())).items():
        watch.output(block, layers, "all")
    for inner, branches in in_turn((branch.inner, branch) for branch in model.branches()).items():
        part, passed = branches[0].part, [branch.layer for branch in branches]
        if part == "feed_forward":
            for module in _nonlinearities(inner, layer_config(config, passed[0])):
                watch.inputs(module, passed, part, dead)
        if isinstance(inner, ShowsRouting):
            watch.routing(inner, passed, part)
        if isinstance(inner, ShowsLogits):
            watch.attention(inner, passed, part)


def _watch_mlp(watch: _Watch, model: Model, config: ModelConfig) -> None:
    layers = model.stream_layers()
    for layer, module in enumerate(layers):
        # What goes into a layer is the stream after the one before it.
        before = layer - 1 if layer else None
        watch.inputs(module, [before], "all" if layer else "input", lambda _, x: of_stream(x))
        for activation in _nonlinearities(module, config):
            watch.inputs(activation, [layer], "all", dead)
    watch.output(model, [len(layers) - 1], "all")


def rms(x: Tensor) -> float:
    """Root of the mean square of all elements."""
    return (torch.linalg.vector_norm(x) / math.sqrt(max(x.numel(), 1))).item()


def of_stream(x: Tensor) -> dict[str, float]:
    """Size of the vectors in the stream, and how alike they are."""
    vectors = x.flatten(0, -2)[:RANK_VECTORS]
    values = {"stream_rms": rms(x)}
    if len(vectors) > 1 and bool(torch.isfinite(vectors).all()):
        values |= {"effective_rank": effective_rank(vectors), "token_cosine": mean_cosine(vectors)}
    return values


def effective_rank(vectors: Tensor) -> float:
    """exp of the entropy of the normalised singular values (Roy & Vetterli 2007): 1 when all vectors are parallel."""
    sizes = torch.linalg.svdvals(vectors)
    if not sizes.sum():
        return 0.0
    return torch.special.entr(sizes / sizes.sum()).sum().exp().item()


def mean_cosine(vectors: Tensor) -> float:
    """Mean cosine between two different vectors, (N, d)."""
    n = len(vectors)
    unit = torch.nn.functional.normalize(vectors.double(), dim=-1)
    return ((unit.sum(0).square().sum() - n) / (n * (n - 1))).item()


def of_attention(logits: Tensor) -> dict[str, float]:
    """Mean entropy of the attention weights in nats, and the largest logit that the softmax (B, heads, T, T) sees."""
    entropy = torch.special.entr(logits.softmax(-1)).sum(-1).mean()
    return {"attention_entropy": entropy.item(), "attention_logit_max": logits.max().item()}


def dead(activation: nn.Module, x: Tensor) -> dict[str, float]:
    """Units (last axis) through which no gradient passes for any token of the batch; entries where it is zero."""
    with torch.enable_grad():
        inputs = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(activation.forward(inputs).sum(), inputs)
    zero = slope == 0
    return {
        "dead_fraction": zero.flatten(0, -2).all(0).double().mean().item(),
        "zero_gradient_fraction": zero.double().mean().item(),
    }


def of_logits(logits: Tensor) -> dict[str, float]:
    """(..., vocab_size): s.d. over the vocabulary (root mean square over tokens), and mean log of the partition sum."""
    return {
        "logit_std": logits.var(-1, unbiased=False).mean().sqrt().item(),
        "log_z": logits.logsumexp(-1).mean().item(),
    }


def _nonlinearities(module: nn.Module, config: ModelConfig) -> list[nn.Module]:
    """Those of a feed-forward layer: as it says itself, or the modules in it of the kind that the config chooses."""
    if isinstance(module, ShowsNonlinearities):
        return list(module.nonlinearities())
    chosen = type(Parts(config)("activation"))
    return [part for part in module.modules() if part is not module and type(part) is chosen]
