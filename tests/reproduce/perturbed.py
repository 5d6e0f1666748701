"""Labs in which something is wrong: what a check measures there has to show it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from gptlab import registry
from gptlab.config import Config
from gptlab.data.tokenizer import ByteTokenizer
from gptlab.reproduce.lab import Lab


class Small(Lab):
    """Fewer seeds, so that a statement over many of them costs little."""

    seeds = 40


class OtherSizes(Small):
    """Another width, depth, vocabulary, dropout; biases and ties the other way round."""

    def composed(self, overrides: tuple[str, ...]) -> Config:
        config = super().composed(overrides)
        model = config.model
        if model.architecture == "deep_mlp":
            return replace(config, model=replace(model, activation="relu"))
        changed = replace(
            model, vocab_size=model.vocab_size + 7, context_length=model.context_length + 3, emb_dim=2 * model.n_heads,
            n_heads=model.n_heads // 2 or 1, n_layers=max(1, model.n_layers // 2), expansion=2 * model.expansion + 1,
            drop_rate=model.drop_rate / 2 + 0.1, drop_embedding=None, drop_attention=None, drop_shortcut=None,
            drop_feed_forward=0.3, qkv_bias=not model.qkv_bias, tie_weights=not model.tie_weights, position="none",
        )  # fmt: skip
        return replace(config, model=changed)


class OtherSeed(Small):
    """Other weights everywhere. The models are small, for the texts of a large one differ as well."""

    seed = 130

    def composed(self, overrides: tuple[str, ...]) -> Config:
        config = super().composed(overrides)
        if config.model.emb_dim < 768 or config.model.architecture == "deep_mlp":
            return config
        return replace(config, model=replace(config.model, emb_dim=24, n_layers=2))


class OtherText(OtherSeed):
    """A tokenizer of bytes."""

    seed = 123
    tokenizer = ByteTokenizer()  # type: ignore[assignment]

    def close(self) -> None:
        self._made.clear()


class TinyNoise(OtherSeed):
    """Noise so small that float32 cannot tell it from nothing after a softmax."""

    seed = 123

    def noise(self, *shape: int, seed: int = 0) -> Tensor:
        return 1e-9 * super().noise(*shape, seed=seed)


class Unsteady(OtherSeed):
    """Models that answer differently each time, look at the past beyond their context, and keep the graph."""

    seed = 123

    def build(self, *overrides: str) -> Any:
        model = super().build(*overrides)
        generator = torch.Generator().manual_seed(0)

        def shake(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
            noise = torch.randn(output.shape, generator=generator, dtype=output.dtype)
            return output + 10 * noise.requires_grad_()

        model.register_forward_hook(shake)
        return model


class Leaky(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + 0.3 * x.tanh() + 0.01 * x.square()


class WrongNorm(nn.Module):
    """Statistics over the batch too, a constant that is added, a large eps, and a shift that starts at one."""

    def __init__(self, dim: int, eps: float = 1e-5, affine: bool = True, bias: bool = True) -> None:
        super().__init__()
        self.dim = dim
        self.scale = nn.Parameter(torch.full((dim,), 1.5))
        self.shift = nn.Parameter(torch.ones(dim))
        self.more = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        rows = x - 0.9 * x.mean()
        return self.scale * rows / (rows.var() + 0.3).sqrt() + self.shift


class MixingFeedForward(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.layers = inner, inner.layers

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + x.mean(dim=-2, keepdim=True)


@contextmanager
def wrong_parts(*slots: str) -> Iterator[Lab]:
    """The components of some slots replaced by wrong ones, under the same names."""
    registry.load_installed()
    original = registry._components
    parts = {slot: dict(names) for slot, names in original.items()}

    def swap(slot: str, name: str, factory: Any) -> None:
        parts[slot][name] = replace(parts[slot][name], factory=factory)

    activations, norms = original["activation"], original["norm"]
    if "activation" in slots:
        for name, component in activations.items():
            swap("activation", name, lambda inner=component.factory: Leaky(inner()))
    if "norm" in slots:
        swap("norm", "layernorm", WrongNorm)
    if "norm_as_identity" in slots:
        swap("norm", "layernorm", lambda dim, **_: norms["identity"].factory())
    if "feed_forward" in slots:
        mlp = original["feed_forward"]["mlp"].factory
        swap("feed_forward", "mlp", lambda **given: MixingFeedForward(mlp(**given)))
    if "shortcut" in slots:
        scaled = original["shortcut"]["scaled"].factory
        swap("shortcut", "add", lambda: scaled(scale=0.02))
    if "attention" in slots:
        multi_head = original["attention"]["multi_head"].factory

        def other_way(**given: Any) -> nn.Module:
            return multi_head(**{**given, "causal": not given.get("causal", True), "softcap": 0.1})

        swap("attention", "multi_head", other_way)
        swap("attention", "identity", lambda: multi_head(emb_dim=32, n_heads=4, causal=False))
    if "position" in slots:
        sinusoidal = original["position"]["sinusoidal"].factory
        swap("position", "sinusoidal", lambda **given: sinusoidal(**given, base=50.0))
    registry._components = parts
    lab = OtherSeed()
    lab.seed = Lab.seed
    try:
        yield lab
    finally:
        registry._components = original
