"""`model.weights=PATH`: the model that a file implies, as the preset that nobody had to write."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import Override

from gptlab.errors import ConfigError, wrong_value
from gptlab.store.config_file import literal

UNSAID = 2**62  # stands for a size that the file leaves open: merging would pass over a missing value


def weights_of(composed: Mapping[str, Any]) -> str | None:
    """What `model.weights` says in a composed config; None where it says nothing."""
    model = composed.get("model")
    said = model.get("weights") if isinstance(model, dict) else None
    return said if isinstance(said, str) and said else None


def preset(weights: str) -> tuple[str, dict[str, Any]]:
    """A name for the preset that no two files share, and its body: keys of `model`, the file's place and its hash.

    GptlabError for what is not there, or cannot be read. What the file leaves open must be said by the user.
    """
    from gptlab.weights.opening import located, open_weights, sha256  # not while help is printed

    found = open_weights(weights)
    known = sha256(found)
    body = {key: UNSAID if value is None else literal(value) for key, value in found.model.items()}
    place = os.path.abspath(located(weights))
    return f"of_file_{known}_{found.family}", {**body, "weights": place, "weights_sha256": known}


def refuse_choice(parsed: Sequence[Override]) -> None:
    """ConfigError for `model=NAME` beside weights: the file says which model it is."""
    for override in parsed:
        if override.key_or_group == "model" and isinstance(override.value(), str):
            raise wrong_value(
                "model",
                override.value(),
                "would be ignored, because model.weights names a file, which says what its model is. Leave it out; "
                "single keys of model can be set beside the file.",
                code="weights-beside-model",
            )


def check_said(composed: Mapping[str, Any]) -> None:
    """ConfigError for what the file leaves open and nobody says, and for another hash than the user pinned."""
    from gptlab.weights.opening import open_weights, sha256

    for key, value in composed["model"].items():
        if value == UNSAID:
            raise ConfigError(
                f"model.{key}: the file of model.weights does not say it, so a value is needed.",
                code="weights-leave-open",
                key=f"model.{key}",
            )
    said, known = str(composed["model"]["weights_sha256"]), sha256(open_weights(composed["model"]["weights"]))
    if said != known:
        raise ConfigError(
            f"model.weights_sha256={said}: the file has {known}.",
            code="weights-not-the-pinned",
            key="model.weights_sha256",
            value=said,
            sha256=known,
        )
