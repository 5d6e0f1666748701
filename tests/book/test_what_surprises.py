"""The reasons that docs/surprises.md gives, measured: why gradients grow, why a seed reverses them, and why 408."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gptlab.book.figures.gradient_flow import batch_of, profile
from gptlab.declare.composer import compose
from gptlab.model import build
from gptlab.probes import Subject
from gptlab.probes.gradients import loss_of

PAGE = (Path(__file__).parents[2] / "docs" / "surprises.md").read_text(encoding="utf-8")
# GPT-2's width and blocks with a small vocabulary and three layers: the reasons do not need 124 million weights.
SMALL = ["model=gpt2_124m", "model.vocab_size=2000", "model.n_layers=3", "data=random_tokens"]


@dataclass
class Looked:
    """One batch: its loss, and at the entrance of each norm the scale of the stream and the norm of its gradient."""

    loss: float
    inputs: Tensor
    targets: Tensor
    logits: Tensor
    streams: dict[str, Tensor]
    first: float  # gradient norm of the first block

    def scale(self, norm: str) -> float:
        """Root mean square, over tokens, of what the norm divides by."""
        return self.streams[norm].detach().std(-1, unbiased=False).square().mean().sqrt().item()

    def gradient(self, norm: str) -> float:
        """Norm of the loss's gradient there."""
        gradient = self.streams[norm].grad
        assert gradient is not None
        return gradient.norm().item()

    def product(self, norm: str) -> float:
        """Scale times gradient: what a norm hands on whatever the scale is."""
        return self.scale(norm) * self.gradient(norm)


def looked_at(*words: str) -> Looked:
    """The batch that `probes.gradients` uses, seen from outside."""
    subject = Subject(compose(list(words)))
    model: Any = subject.model.eval()
    probe = subject.config.probes.gradients
    assert probe is not None and probe.context is not None
    batch = subject.source.batch(probe.batch_size, probe.context)
    with torch.no_grad():
        logits = model(batch.inputs)
    streams: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def hook(module: object, given: tuple[Tensor, ...]) -> None:
            given[0].retain_grad()
            streams[name] = given[0]

        return hook

    for name, module in model.named_modules():
        if name.split(".")[-1] in ("norm1", "norm2", "final_norm"):
            module.register_forward_pre_hook(keep(name))
    loss = loss_of(model, batch)
    loss.backward()
    own = [weight.grad for name, weight in model.named_parameters() if name.startswith("trf_blocks.0.")]
    first = math.sqrt(sum(float(grad.square().sum()) for grad in own if grad is not None))
    return Looked(loss.item(), batch.inputs, batch.targets, logits, streams, first)


def tied_loss(found: Looked) -> tuple[float, float]:
    """(768 / s for the targets that are not the token read: what the page derives; their share)."""
    others = (found.inputs != found.targets).float().mean().item()
    return others * found.streams["final_norm"].shape[-1] / found.scale("final_norm"), others


def stream_scale(layers: int, width: int, hidden: int, tokens: int) -> float:
    """The scale at the last norm, from how torch draws the weights: no model is built.

    Token and position are N(0, 1) each. Linear layers are uniform with variance 1 / (3 fan_in), so values have variance
    1/3, attention's mean over t tokens has 1/t of it, and its output 1/3 of that. The feed-forward network's second
    layer gives a third of the mean square of its activations.
    """
    z = torch.linspace(-8, 8, 20001, dtype=torch.float64)
    spread = math.sqrt(1 / 3 + 1 / (3 * width))
    density = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    active = torch.nn.functional.gelu(z * spread, approximate="tanh") ** 2
    square = float(torch.trapezoid(active * density, z))
    mean_of_tokens = sum(1 / t for t in range(1, tokens + 1)) / tokens
    attention = mean_of_tokens / 9 + 1 / (3 * width)
    return math.sqrt(2 + layers * (attention + square / 3 + 1 / (3 * hidden)))


def test_a_norm_makes_gradients_larger_by_as_much_as_its_stream_is_smaller() -> None:
    with_, without = looked_at(*SMALL), looked_at(*SMALL, "ablation=no_shortcut")
    # The last norm: the very same product, so the gradient is larger by the ratio of the scales.
    assert without.product("final_norm") == pytest.approx(with_.product("final_norm"), rel=0.02)
    ratio = without.gradient("final_norm") / with_.gradient("final_norm")
    assert ratio == pytest.approx(with_.scale("final_norm") / without.scale("final_norm"), rel=0.02)
    assert ratio > 6
    # On the way to the first block: with shortcuts nothing is added to it, without them all goes through the branches.
    along = [with_.product(name) for name in with_.streams]
    assert max(along) / min(along) < 1.1
    through = [without.product(name) for name in without.streams]
    assert max(through) / min(through) > 1.5
    assert without.first / with_.first > 5


def test_seed_seven_reverses_because_gelu_is_flat_where_its_shortcuts_end() -> None:
    config = compose(["model=deep_mlp", "seed=7"])
    found, ends = {}, {}
    for name in ("add", "none"):
        case = replace(config, model=replace(config.model, shortcut=name))
        found[name] = profile(case)
        model: Any = build(case)
        seen: list[float] = []
        model.layers[-1][0].register_forward_hook(lambda *hook, seen=seen: seen.append(hook[2].item()))
        model(batch_of(case).inputs)
        ends[name] = seen[0]
    lifts = [a / b for a, b in zip(found["add"].gradients, found["none"].gradients, strict=True)]
    assert all(lift < 0.1 for lift in lifts)  # reversed, in every layer
    x = torch.tensor([ends["add"], ends["none"]], requires_grad=True)
    torch.nn.functional.gelu(x, approximate="tanh").sum().backward()
    assert x.grad is not None
    flat, steep = x.grad.tolist()
    assert (ends["add"], ends["none"]) == (pytest.approx(-0.745, abs=1e-3), pytest.approx(0.434, abs=1e-3))
    assert (flat, steep) == (pytest.approx(0.0033, abs=1e-4), pytest.approx(0.82, abs=0.02))
    # Without the last slope and the output's own size the lift is above 1, as in other seeds.
    error = abs(found["add"].output[0] / found["none"].output[0])
    assert lifts[0] / (flat / steep) / error == pytest.approx(20.7, abs=0.1)
    assert (1 / lifts[0], error) == (pytest.approx(20.5, abs=0.1), pytest.approx(0.587, abs=1e-3))
    for words in ("-0.745", "0.0033", "20 times *smaller*", "x0.59", "x21"):
        assert words in PAGE, words


def test_a_tied_unscaled_table_loses_its_own_logit() -> None:
    found = looked_at(*SMALL, "ablation=tied_unscaled")
    own = found.logits.gather(-1, found.inputs[..., None]).squeeze(-1)
    assert torch.equal(own, found.logits.amax(-1))  # the token that was read wins, always
    assert (found.logits.logsumexp(-1) - own).abs().max() < 1e-3
    expected, _ = tied_loss(found)
    assert found.loss == pytest.approx(expected, rel=0.02)
    assert stream_scale(3, 768, 3072, found.inputs.shape[-1]) == pytest.approx(found.scale("final_norm"), rel=0.03)


@pytest.mark.slow
def test_the_numbers_of_the_page_at_124m() -> None:
    tied = looked_at("model=gpt2_124m", "ablation=tied_unscaled")
    expected, others = tied_loss(tied)
    assert (round(tied.loss, 1), round(128 * (1 - others))) == (408.4, 17)
    assert expected == pytest.approx(tied.loss, rel=0.01)
    closed = stream_scale(12, 768, 3072, 64)
    assert (round(closed, 2), round(tied.scale("final_norm"), 2)) == (1.6, 1.63)
    with_, without = looked_at("model=gpt2_124m"), looked_at("model=gpt2_124m", "ablation=no_shortcut")
    for found, scale in ((with_, 1.63), (without, 0.204)):
        assert found.scale("final_norm") == pytest.approx(scale, abs=5e-3)
        assert found.product("final_norm") == pytest.approx(0.051, abs=5e-4)
    assert without.first / with_.first == pytest.approx(12.12, abs=0.05)
    steps = [without.product(name) for name in without.streams]
    assert (round(min(steps), 2), round(without.product("trf_blocks.1.norm1"), 3)) == (0.02, 0.125)
    for words in ("408", "17 of the 128", "1.63", "1.60", "0.204", "0.051", "0.020", "0.125", "x12"):
        assert words in PAGE, words
