"""What the checks measure with. Everything that a check looks at comes from here, and is made once."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from gptlab import registry
from gptlab.config import Config
from gptlab.data.tokenizer import Tokenizer, make_tokenizer
from gptlab.declare.composer import Composer
from gptlab.model import build, skeleton
from gptlab.probes import Subject
from gptlab.probes.gradients import measure as measure_gradients
from gptlab.probes.memory import weight_bytes
from gptlab.probes.parameters import group_sizes
from gptlab.probes.shapes import trace

T = TypeVar("T")
FIVE_LAYERS = "model=deep_mlp"
WITHOUT_SHORTCUTS = "ablation=no_shortcut"


class Lab:
    """Configs, models, parts, probes and the tokenizer, as the sources used them: seed 123, GPT-2 small."""

    seed = 123
    seeds = 500  # over how many a statement about chance is looked at

    def __init__(self) -> None:
        self._made: dict[Any, Any] = {}

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` returns, made at the first call with this key."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def close(self) -> None:
        """Forget all that was made; the 124M model takes 622 MiB."""
        self._made.clear()
        self.__dict__.pop("tokenizer", None)

    def config(self, *overrides: str) -> Config:
        """What the overrides declare, at this lab's seed: a copy, free to be changed."""
        config = self.once(("config", overrides), lambda: self.composed(overrides))
        return replace(config, seed=self.seed)

    def composed(self, overrides: tuple[str, ...]) -> Config:
        return self.composer.job(overrides).config

    def counts(self, *overrides: str) -> dict[str, float | int]:
        """Parameters of a variant, whole and by part, and MiB; FLOPs are left out, for they take a second to count."""

        def counted() -> dict[str, float | int]:
            model = self.skeleton(*overrides)
            counts: dict[str, float | int] = {f"parameters/{part}": n for part, n in group_sizes(model).items()}
            size = weight_bytes(model)
            return counts | {"parameters": sum(counts.values()), "bytes": size, "mib": size / 2**20}

        return self.once(("counts", overrides), counted)

    def skeleton(self, *overrides: str) -> Any:
        """The model on the meta device."""
        return skeleton(self.config(*overrides).model)

    def build(self, *overrides: str) -> Any:
        """A new model with its initial weights."""
        return build(self.config(*overrides))

    @cached_property
    def composer(self) -> Composer:
        return Composer()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return make_tokenizer("gpt2", "", 50257)

    @property
    def small(self) -> Any:
        """GPT-2 124M, untied, built once."""
        return self.once("small", self.build)

    def shapes(self, batch_size: int, context: int, *overrides: str) -> list[dict[str, Any]]:
        """The shape trace, with shapes as tuples."""
        rows = trace(self.config(*overrides).model, batch_size, context)
        return [{**row, "output_shape": ast.literal_eval(row["output_shape"])} for row in rows]

    def shape(self, module: str, batch_size: int, context: int, *overrides: str) -> tuple[int, ...]:
        """The shape that one module puts out."""
        return next(
            row["output_shape"] for row in self.shapes(batch_size, context, *overrides) if row["module"] == module
        )

    def part(self, slot: str, name: str, **inputs: Any) -> Any:
        """A component by itself, built as the registry builds it."""
        return registry.get(slot, name).factory(**inputs)

    def five_layers(self, *overrides: str) -> Any:
        """The five-layer network with its initial weights."""
        return self.build(FIVE_LAYERS, *overrides)

    def gradients(self, *overrides: str) -> list[float]:
        """Mean |dL/dW| of each layer of the five-layer network, by the gradients probe."""
        rows = self.once(
            ("gradients", overrides),
            lambda: measure_gradients(Subject(self.config(FIVE_LAYERS, *overrides))).tables["tensors"],
        )
        return [row["grad_mean_abs"] for row in rows if row["name"].endswith("weight")]

    def noise(self, *shape: int, seed: int = 0) -> Tensor:
        """Standard normal numbers in float64."""
        return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
