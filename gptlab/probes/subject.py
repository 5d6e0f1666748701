"""What a probe looks at, and what it brings back."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from gptlab import registry
from gptlab.config import Config
from gptlab.data.batches import TokenSource, VectorSource, load
from gptlab.errors import GptlabError
from gptlab.model import Model, build, skeleton
from gptlab.probes.memory import physical_memory, weight_bytes


@dataclass
class Subject:
    """One variant under observation. The model and the data are made when a probe first asks for them.

    `found_along`: by probe, what another one's pass over the same batch has shown already.
    """

    config: Config
    found_along: dict[str, Measurement] = field(default_factory=dict, init=False)

    @cached_property
    def model(self) -> Model:
        """The built model. GptlabError when weights, gradients and what training adds cannot fit into memory."""
        weights, present = weight_bytes(skeleton(self.config.model)), physical_memory()
        what, needed = ("weights and gradients", 2 * weights) if self.config.probes.gradients else ("weights", weights)
        if self.config.train.budget is not None:
            states = registry.get("optimizer", self.config.train.optimizer).facts["states"]
            what, needed = "weights, gradients and optimizer", (2 + states) * weights
        if present and needed > present:
            raise GptlabError(
                f"{what} need {needed / 2**30:,.0f} GiB, this machine has {present / 2**30:,.0f} GiB; "
                "`gptlab plan` and `probes=counting` need none of it",
                code="model-memory",
            )
        return build(self.config)

    @cached_property
    def source(self) -> TokenSource | VectorSource:
        """The data that the config names."""
        return load(self.config.data, vocab_size=self.config.model.vocab_size, seed=self.config.seed)

    @property
    def is_gpt(self) -> bool:
        """Whether the model takes token ids."""
        return self.config.model.architecture == "gpt"


@dataclass
class Measurement:
    """What one probe found: single numbers, tidy tables (file stem -> rows), documents, and what deserves a word."""

    metrics: dict[str, float | int] = field(default_factory=dict)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def l2_norm(tensor: torch.Tensor | None) -> float:
    """Euclidean norm over all elements; 0 for a missing gradient."""
    return 0.0 if tensor is None else float(torch.linalg.vector_norm(tensor))
