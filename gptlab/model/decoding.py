"""Decoding step by step: what each part of the model remembers of the tokens that it has seen.

A part that mixes tokens takes `state` in its `forward` and returns the next one, and has the method

    def empty_state(self, batch_size: int, capacity: int) -> State

for the start: room for `capacity` tokens. A model's `start_decoding` collects them, `GPT.run(ids, decoding)` takes any
number of new tokens, and gives the same numbers as one pass over all of them.

A `State` is a value: each step returns the next one. (It may take over the memory of the one before, which is used up
by that.) Three things can be asked of it, whatever it holds: keys and values, a ring of the last `window` of them with
sinks in front, the latents of MLA, the last inputs of a convolution, the matrix of a recurrence:

    length              how many tokens it stands for
    reordered(rows)     rows chosen anew, for beams and for sequences that have ended
    cropped(length)     the state after the first `length` tokens, where that can still be known

What attends to remembered keys gets their positions beside them and masks by these, so a ring need not be in order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from gptlab.errors import GptlabError


class State(ABC):
    """What one part remembers."""

    length: int  # tokens seen

    @abstractmethod
    def reordered(self, rows: Tensor) -> Self:
        """Row i of the new state is row rows[i] of this one, (new batch,) int64. Shares no memory with this one."""

    def cropped(self, length: int) -> Self:
        """As it was after the first `length` tokens. GptlabError where that is forgotten, as in a recurrence."""
        if length == self.length:
            return self
        raise GptlabError(
            f"{type(self).__name__} cannot go back from {self.length} tokens to {length}.",
            code="decoding-cannot-go-back", seen=self.length, value=length,
        )  # fmt: skip


@runtime_checkable
class Decodable(Protocol):
    """A part that can be decoded step by step."""

    def empty_state(self, batch_size: int, capacity: int) -> State:
        """The state before the first token, with room for `capacity` of them."""


@runtime_checkable
class DecodableBlock(Protocol):
    """A block whose parts can be decoded step by step."""

    def empty_states(self, batch_size: int, capacity: int) -> Mapping[str, State]:
        """Their states before the first token, by name. GptlabError where one of them has none and needs one."""


@dataclass(frozen=True, eq=False)
class KeyValues(State):
    """Keys and values of all tokens so far, (B, n_kv_heads, capacity, head_dim) each, filled from the left.

    The memory is taken when the first keys come, in their type and on their device.
    """

    capacity: int
    length: int = 0
    keys: Tensor | None = None
    values: Tensor | None = None

    def extended(self, keys: Tensor, values: Tensor) -> KeyValues:
        """With those of the next tokens, (B, n_kv_heads, T, head_dim). Writes them into this state's memory."""
        end = self.length + keys.shape[2]
        if end > self.capacity:
            raise GptlabError(
                f"{end} tokens do not fit into a decoding state with room for {self.capacity}.",
                code="decoding-room", value=end, allowed=self.capacity,
            )  # fmt: skip
        rooms = []
        for room, new in ((self.keys, keys), (self.values, values)):
            if room is None:
                room = new.new_empty(*new.shape[:2], self.capacity, new.shape[3])
            room[:, :, self.length : end] = new
            rooms.append(room)
        return replace(self, length=end, keys=rooms[0], values=rooms[1])

    def seen(self) -> tuple[Tensor, Tensor, Tensor]:
        """(keys, values, positions of the keys) of all tokens so far."""
        assert self.keys is not None and self.values is not None
        positions = torch.arange(self.length, device=self.keys.device)
        return self.keys[:, :, : self.length], self.values[:, :, : self.length], positions

    def reordered(self, rows: Tensor) -> KeyValues:
        if self.keys is None or self.values is None:
            return self
        return replace(self, keys=self.keys[rows], values=self.values[rows])

    def cropped(self, length: int) -> KeyValues:
        if not 0 <= length <= self.length:
            return super().cropped(length)  # which refuses it
        return replace(self, length=length)


class Decoding(NamedTuple):
    """The state of a whole model: for each block, what its parts remember, by their names."""

    length: int
    blocks: tuple[Mapping[str, State], ...]

    def reordered(self, rows: Tensor) -> Decoding:
        """Row i of the new state is row rows[i] of this one."""
        return self._each(lambda state: state.reordered(rows))

    def cropped(self, length: int) -> Decoding:
        """The state after the first `length` tokens. GptlabError where a part has forgotten it."""
        return self._each(lambda state: state.cropped(length))._replace(length=length)

    def _each(self, change: Callable[[State], State]) -> Decoding:
        blocks = tuple({name: change(state) for name, state in states.items()} for states in self.blocks)
        return self._replace(blocks=blocks)


def not_decodable(part: str, method: str) -> GptlabError:
    """The error for a part that lacks what decoding asks for."""
    return GptlabError(
        f"{part} has no {method}: this model cannot be decoded step by step.", code="not-decodable", part=part
    )


def empty(blocks: Iterable[object], batch_size: int, capacity: int) -> Decoding:
    """The state before the first token. GptlabError, naming what is to blame, where there is none."""
    states = []
    for block in blocks:
        if not isinstance(block, DecodableBlock):
            raise not_decodable(type(block).__name__, "empty_states")
        states.append(block.empty_states(batch_size, capacity))
    return Decoding(0, tuple(states))
