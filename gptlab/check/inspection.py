"""What a path holds, before anything is built from it: which model it implies, and whether all of it is there."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptlab.config import ModelConfig, flatten
from gptlab.model import skeleton
from gptlab.model.build import implied_model
from gptlab.weights.found import Found
from gptlab.weights.loading import fit_into, shapes_of
from gptlab.weights.opening import open_weights, sha256


@dataclass(frozen=True)
class Inspection:
    """A file of weights in words and numbers. Nothing but headers was read, and the bytes once, for their hash."""

    path: Path
    format: str
    family: str
    files: tuple[Path, ...]
    bytes: int
    sha256: str
    model: Mapping[str, Any]  # dotted keys below `model`, without those at gptlab's own defaults
    unsaid: tuple[str, ...]  # keys that the file leaves open, and that have to be given
    parameters: int
    kinds: Mapping[str, int]  # type of the tensors -> how many there are
    dropped: Mapping[str, int]  # what is no weight -> how many tensors
    missing: tuple[str, ...]
    left_over: tuple[str, ...]
    notes: tuple[str, ...]
    tokenizer: Path | None

    @property
    def whole(self) -> bool:
        """Whether the file holds the model that it says it holds, no less and no more."""
        return not self.missing and not self.left_over

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain |= {"path": str(self.path), "files": [str(file) for file in self.files], "whole": self.whole}
        plain["tokenizer"] = self.tokenizer and str(self.tokenizer)
        return plain


def inspect(path: Path | str) -> Inspection:
    """What is at `path`. GptlabError where nothing is, or nothing that is known, or a pickle with code in it."""
    found = open_weights(path)
    shapes = shapes_of(skeleton(implied_model(found.model)))
    fit = fit_into(found, shapes)
    return Inspection(
        path=found.path,
        format=found.format,
        family=found.family,
        files=found.files,
        bytes=sum(file.stat().st_size for file in found.files),
        sha256=sha256(found),
        model=said(found),
        unsaid=tuple(sorted(f"model.{key}" for key, value in found.model.items() if value is None)),
        parameters=sum(map(math.prod, shapes.values())),
        kinds=Counter(held.kind for name, held in found.held.items() if name not in found.dropped),
        dropped=Counter(found.dropped.values()),
        missing=fit.missing,
        left_over=(*found.strange, *fit.left_over),
        notes=found.notes,
        tokenizer=found.tokenizer,
    )


def said(found: Found) -> dict[str, Any]:
    """Dotted keys of `model` that the file says otherwise than gptlab's defaults."""
    plain, default = flatten(dict(found.model)), flatten(dataclasses.asdict(ModelConfig()))
    return {key: value for key, value in plain.items() if value is not None and default.get(key, ...) != value}
