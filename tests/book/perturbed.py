"""Labs in which something is wrong: what a check measures there has to show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from gptlab import registry
from gptlab.book.reproduce.lab import Lab
from gptlab.config import Config
from gptlab.data.tokenizer import ByteTokenizer


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
        heads, rate = model.n_heads // 2 or 1, model.drop_rate / 2 + 0.1
        changed = replace(
            model, vocab_size=model.vocab_size + 7, context_length=model.context_length + 3, emb_dim=6 * heads,
            n_heads=heads, n_layers=max(1, model.n_layers // 2), expansion=2 * model.expansion + 1,
            drop_rate=rate, drop_embedding=None, drop_attention=None, drop_shortcut=None, drop_feed_forward=rate,
            qkv_bias=not model.qkv_bias, tie_weights=not model.tie_weights, position="none",
        )  # fmt: skip
        return replace(config, model=changed)


class NoBiases(Small):
    """No biases, with which the feed-forward layer has as many weights as attention at expansion 2."""

    def composed(self, overrides: tuple[str, ...]) -> Config:
        config = super().composed(overrides)
        model = replace(config.model, attention_bias=False, feed_forward_bias=False, n_layers=1)
        return replace(config, model=model) if model.architecture == "gpt" else config


class ShortNet(Lab):
    """Three layers instead of five, and one seed instead of 500."""

    seeds = 1

    def composed(self, overrides: tuple[str, ...]) -> Config:
        config = super().composed(overrides)
        if config.model.architecture == "deep_mlp":
            config = replace(config, model=replace(config.model, layer_sizes=[3, 3, 3, 1]))
        return config


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
    """Models that start from other weights each time, answer differently each time, and keep the graph."""

    seed = 123

    def build(self, *overrides: str) -> Any:
        self.seed += 1
        model = super().build(*overrides)
        generator = torch.Generator().manual_seed(0)

        def shake(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
            noise = torch.randn(output.shape, generator=generator, dtype=output.dtype)
            with torch.enable_grad():
                return output + 10 * noise.requires_grad_()

        model.register_forward_hook(shake)
        return model


class Leaky(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + 0.3 * x.tanh() + 0.01 * x.square()


class Shifted(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(1.1 * x) + 0.1


class Constant(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0 * x + 0.1


class Faint(nn.Module):
    """A shortcut through which next to nothing passes."""

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        return 0.01 * x + 3 * branch


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


def only_the_past(attention: Any) -> Any:
    """A mask that hides each token from itself, too: the first one has nothing to look at."""
    allowed = attention.logits
    attention.logits = lambda q, k: allowed(q, k).masked_fill(torch.eye(q.shape[-2], dtype=torch.bool), -torch.inf)
    return attention


Components = dict[str, dict[str, registry.Component]]
Swaps = dict[tuple[str, str], Any]


def _activation(parts: Components) -> Swaps:
    def leaky(name: str) -> Any:
        return lambda: Leaky(parts["activation"][name].factory())

    return {("activation", name): leaky(name) for name in parts["activation"]}


def _attention(parts: Components) -> Swaps:
    multi_head = parts["attention"]["multi_head"].factory

    def other_way(**given: Any) -> nn.Module:
        return multi_head(**{**given, "causal": not given.get("causal", True), "softcap": 0.1})

    return {
        ("attention", "multi_head"): other_way,
        ("attention", "identity"): lambda: multi_head(emb_dim=32, n_heads=4, causal=False),
    }


WRONG: dict[str, Callable[[Components], Swaps]] = {
    "activation": _activation,
    "activation_alone": lambda parts: {
        ("activation", "gelu_tanh"): lambda: Shifted(parts["activation"]["gelu_tanh"].factory()),
        ("activation", "relu"): Constant,
    },
    "norm": lambda parts: {("norm", "layernorm"): WrongNorm},
    "norm_as_identity": lambda parts: {("norm", "layernorm"): lambda dim, **_: nn.Identity()},
    "feed_forward": lambda parts: {
        ("feed_forward", "mlp"): lambda **given: MixingFeedForward(parts["feed_forward"]["mlp"].factory(**given))
    },
    "shortcut": lambda parts: {("shortcut", "add"): lambda: parts["shortcut"]["scaled"].factory(scale=0.02)},
    "shortcut_faint": lambda parts: {("shortcut", "add"): Faint},
    "attention": _attention,
    "attention_to_the_past": lambda parts: {
        ("attention", "multi_head"): lambda **given: only_the_past(parts["attention"]["multi_head"].factory(**given))
    },
    "position": lambda parts: {
        ("position", "sinusoidal"): lambda **given: parts["position"]["sinusoidal"].factory(**given, base=50.0)
    },
}


@contextmanager
def wrong_parts(*slots: str) -> Iterator[Lab]:
    """The components of some slots replaced by wrong ones, under the same names."""
    registry.load_installed()
    original = registry._components
    parts = {slot: dict(names) for slot, names in original.items()}

    for slot in slots:
        for (of, name), factory in WRONG[slot](original).items():
            parts[of][name] = replace(parts[of][name], factory=factory)
    registry._components = parts
    lab = OtherSeed()
    lab.seed = Lab.seed
    try:
        yield lab
    finally:
        registry._components = original
