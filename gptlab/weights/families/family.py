"""What each family of models says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gptlab.weights.pieces import Piece
from gptlab.weights.settings import Settings

Model = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """A stock class of Hugging Face's, and its way to gptlab and back.

    `model_of` reads a config.json into keys of `model`; `config_of` is its inverse on complete keys of `model`, as far
    as the class can say them: whoever uses it reads the result back, and sees what was lost. `pieces` needs no more
    than complete keys of `model`, and names tensors that a file need not have. `zeros`: keys of `model` that
    the class cannot leave out but fill with zeros, each with the value that it has then.
    """

    name: str  # model_type
    class_name: str
    prefix: str  # of the tensors' names; files of the bare model lack it
    model_of: Callable[[Settings], Model]
    config_of: Callable[[Mapping[str, Any]], dict[str, Any]]
    pieces: Callable[[Mapping[str, Any]], list[Piece]]
    zeros: Mapping[str, Any] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)  # the end of a name -> why it is no weight


ACTIVATIONS = {
    "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh", "gelu": "gelu",
    "relu": "relu", "silu": "silu", "swish": "silu", "relu2": "relu2",
}  # fmt: skip
GATED = {
    "silu": "swiglu", "swish": "swiglu", "gelu_pytorch_tanh": "geglu_tanh", "gelu_new": "geglu_tanh", "gelu": "geglu",
    "relu": "reglu", "relu2": "relu2_glu",
}  # fmt: skip


def back(names: Mapping[str, str], ours: str) -> str:
    """The first name there of what is `ours` here; ours where there is none, which no class will take."""
    return next((theirs for theirs, mine in names.items() if mine == ours), ours)


def option(model: Mapping[str, Any], slot: str, name: str, default: Any = None) -> Any:
    """`model.options.<slot>.<name>`."""
    return model.get("options", {}).get(slot, {}).get(name, default)


def options(**slots: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Options by slot, without those that are None and slots that are empty."""
    kept = {slot: {key: value for key, value in given.items() if value is not None} for slot, given in slots.items()}
    return {slot: given for slot, given in kept.items() if given}


def width_of(model: Mapping[str, Any]) -> int:
    """Width inside the feed-forward layer."""
    from gptlab.config import ModelConfig

    hidden = model.get("hidden_dim")
    if hidden:
        return int(hidden)
    width = max(1, int(float(model.get("expansion", ModelConfig().expansion)) * model["emb_dim"] + 0.5))
    multiple = model.get("hidden_multiple")
    return -(-width // multiple) * multiple if multiple else width
