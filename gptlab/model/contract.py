"""What a part of the model may ask for and give, beside the stream: all of it declared by the signature of `forward`.

A part takes the stream `x` first. Every other parameter of its `forward` is something that it asks for, by name:

    ids               token ids, (B, T) int64
    positions         where those tokens stand, (T,) int64: 0 to T - 1, or further on in step-by-step decoding
    first_embeddings  the stream as it enters the first block, (B, T, emb_dim)
    state             what this part remembers of earlier tokens while decoding (`gptlab.model.decoding`), else None
    any other name    a tensor that an earlier part has handed on under this name. With a default it may be missing; a
                      name without a default that nothing before hands on is refused when the model is built.

A part returns the stream, (B, T, emb_dim). One that gives more names it in the type that it returns:

    class Attended(NamedTuple):
        y: Tensor                  # first of all: the stream
        first_values: Handed       # handed on, to whatever comes later and asks for `first_values`
        balance: Loss              # a scalar, weighted by the part, added to the loss that training differentiates
        state: KeyValues | None    # what to remember of these tokens

    def forward(self, x: Tensor, first_values: Tensor | None = None, state: KeyValues | None = None) -> Attended: ...

A field that is None gives nothing. Where there is only the stream to give, `forward` may return that alone. Nothing is
written into anything shared: whatever passes from layer to layer is an argument or a result, so sharded training and
activation checkpointing see it. Tensors that are handed on belong to the same tokens as `x`, or to all that these may
look at, in which case their positions go with them.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from gptlab.errors import ConfigError
from gptlab.model.decoding import State

_HANDED, _LOSS = "handed on", "auxiliary loss"
Handed = Annotated[Tensor, _HANDED]
Loss = Annotated[Tensor, _LOSS]
_STATE = "state"
_CONTEXT = ("ids", "positions", "first_embeddings")
_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
States = Mapping[str, State]  # by the name that a part has within its block


class Context(NamedTuple):
    """What a block sees beside the stream."""

    ids: Tensor | None
    positions: Tensor
    first_embeddings: Tensor | None = None
    handed: Mapping[str, Tensor] = {}  # by name: what earlier parts have handed on
    states: States | None = None  # of this block's parts; None: not decoding


class BlockOutput(NamedTuple):
    """What a block gives: the stream, what it hands on, auxiliary losses, and what its parts are to remember."""

    x: Tensor
    handed: Mapping[str, Tensor] = {}
    losses: Mapping[str, Tensor] = {}
    states: States = {}  # noqa: RUF012


def alone(x: Tensor) -> Context:
    """The context of a block that is called with nothing but the stream (B, T, emb_dim)."""
    return Context(None, torch.arange(x.shape[1], device=x.device), x)


@dataclass
class Given:
    """What the parts of one block have given so far, within one pass: a BlockOutput in the making."""

    handed: dict[str, Tensor] = field(default_factory=dict)
    losses: dict[str, Tensor] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)


@dataclass(frozen=True)
class Signature:
    """What the signature of a part's `forward` declares."""

    part: str  # its class, for messages
    context: tuple[str, ...] = ()  # of ids, positions and first_embeddings
    state: bool = False
    handed: tuple[str, ...] = ()  # what it takes, if an earlier part hands it on
    required: tuple[str, ...] = ()  # those of `handed` that it cannot do without
    hands_on: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()  # the field that holds its new state

    def call(self, part: nn.Module, x: Tensor, context: Context, given: Given, name: str = "") -> Any:
        """The new stream; of a position, what is added to it, or None. All else that the part gives goes into `given`.

        `name` is that of the part in its block.
        """
        arguments: dict[str, Any] = {key: getattr(context, key) for key in self.context}
        for key in self.handed:
            value = given.handed.get(key, context.handed.get(key))
            if value is not None:
                arguments[key] = value
        if self.state and context.states is not None:
            arguments["state"] = context.states.get(name)
        output = part(x, **arguments)
        if output is None or isinstance(output, Tensor):
            return output
        declared = len(self.hands_on) + len(self.losses) + len(self.keeps)
        if not isinstance(output, tuple) or len(output) != 1 + declared:
            raise TypeError(f"{self.part}: forward returned something else than the type that its signature declares")
        for key in self.hands_on:
            if (value := getattr(output, key)) is not None:
                given.handed[key] = value
        for key in self.losses:
            if (value := getattr(output, key)) is not None:
                given.losses[key] = given.losses[key] + value if key in given.losses else value
        for key in self.keeps:
            if (state := getattr(output, key)) is not None:
                given.states[name] = state
        return output[0]


@runtime_checkable
class Declares(Protocol):
    """A block that says what its parts ask for and give."""

    def declares(self) -> list[Signature]:
        """In the order in which they are called."""


def check_handed(blocks: Iterable[nn.Module]) -> None:
    """ConfigError where a part cannot do without a tensor that nothing before it hands on."""
    known: set[str] = set()
    for layer, block in enumerate(blocks):
        for signature in block.declares() if isinstance(block, Declares) else ():
            for name in signature.required:
                if name not in known:
                    raise ConfigError(
                        f"layer {layer}: {signature.part} asks for {name!r}, which is nothing that a part is given and "
                        f"nothing before it hands on. Given are: {', '.join((*_CONTEXT, 'state'))}.",
                        code="not-handed-on",
                        part=signature.part,
                        value=name,
                        layer=layer,
                        allowed=(*_CONTEXT, "state"),
                    )
            known.update(signature.hands_on)


def signature_of(part: nn.Module | type[nn.Module]) -> Signature:
    """What a part, or a class of parts, declares. ConfigError for a returned field of no known kind."""
    kind = part if isinstance(part, type) else type(part)
    _, *named = (p for p in inspect.signature(kind.forward).parameters.values() if p.kind not in _STARRED)
    asked = named[1:]  # the stream comes first
    handed = [p for p in asked if p.name not in (*_CONTEXT, "state")]
    fields = _returned(kind)
    return Signature(
        part=kind.__name__,
        context=tuple(p.name for p in asked if p.name in _CONTEXT),
        state=any(p.name == "state" for p in asked),
        handed=tuple(p.name for p in handed),
        required=tuple(p.name for p in handed if p.default is p.empty),
        hands_on=tuple(name for name, what in fields.items() if what == _HANDED),
        losses=tuple(name for name, what in fields.items() if what == _LOSS),
        keeps=tuple(name for name, what in fields.items() if what == _STATE),
    )


def _returned(kind: type[nn.Module]) -> dict[str, str]:
    """Field -> what it is, of the NamedTuple that `forward` may return; the stream, its first field, is left out."""
    try:
        returned = typing.get_type_hints(kind.forward, include_extras=True).get("return")
    except NameError:  # names that exist for type checkers alone; a part that gives more than the stream must not do so
        return {}
    for choice in (returned, *typing.get_args(returned)):
        if inspect.isclass(choice) and issubclass(choice, tuple) and hasattr(choice, "_fields"):
            hints = typing.get_type_hints(choice, include_extras=True)
            return {name: _kind_of(hints.get(name), f"{kind.__name__}: {name}") for name in choice._fields[1:]}
    return {}


def _kind_of(hint: Any, where: str) -> str:
    for choice in (hint, *typing.get_args(hint)):
        for mark in getattr(choice, "__metadata__", ()):  # of Annotated
            if mark in (_HANDED, _LOSS):
                return str(mark)
        if inspect.isclass(choice) and issubclass(choice, State):
            return _STATE
    raise ConfigError(
        f"{where} is returned by forward, and its type is neither Handed, Loss nor a State.",
        code="returned-kind-unknown", field=where,
    )  # fmt: skip
