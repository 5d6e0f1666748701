"""Decoding step by step: what each part of the model remembers of the tokens that it has seen.

A part that mixes tokens takes `state` in its `forward` and returns the next one, and has the method

    def empty_state(self, batch_size: int, capacity: int) -> State

for the start: room for `capacity` tokens. A model's `start_decoding` collects them, `GPT.run(ids, decoding)` takes any
number of new tokens, and gives the same numbers as one pass over all of them.

A `State` is a value: each step returns the next one. (It may take over the memory of the one before, which is used up
by that.) Four things can be asked of it, whatever it holds: keys and values, a ring of the last `window` of them, the
latents of MLA, the last inputs of a convolution, the matrix of a recurrence:

    length              how many tokens it stands for
    reordered(rows)     rows chosen anew, for beams and for sequences that have ended
    joined(other)       its rows and those of another of the same length, for texts that began later
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

    @abstractmethod
    def joined(self, other: Self) -> Self:
        """The rows of this one, then those of `other`: the same part's, with as many tokens. Shares no memory."""

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

    def empty_state(self, batch_size: int, capacity: int) -> State | None:
        """The state before the first token, with room for `capacity` of them. None: nothing of its own to remember."""


@runtime_checkable
class DecodableBlock(Protocol):
    """A block whose parts can be decoded step by step."""

    def empty_states(self, batch_size: int, capacity: int) -> Mapping[str, State]:
        """Their states before the first token, by name. GptlabError where one of them has none and needs one."""


class Attendable(State):
    """Remembered keys and values, (B, n_kv_heads, room, head_dim) each. A dataclass.

    The memory is taken when the first ones come, in their type and on their device.
    """

    keys: Tensor | None
    values: Tensor | None

    @abstractmethod
    def extended(self, keys: Tensor, values: Tensor) -> Self:
        """With those of the next tokens, (B, n_kv_heads, T, head_dim). Writes them into this state's memory."""

    @abstractmethod
    def seen(self) -> tuple[Tensor, Tensor, Tensor]:
        """(keys, values, positions of the keys): all that the newest tokens may look at, in any order."""

    def reordered(self, rows: Tensor) -> Self:
        if self.keys is None or self.values is None:
            return self
        return self._holding(self.keys[rows], self.values[rows])

    def joined(self, other: Self) -> Self:
        if self.keys is None or self.values is None or other.keys is None or other.values is None:
            return self
        return self._holding(torch.cat((self.keys, other.keys)), torch.cat((self.values, other.values)))

    @abstractmethod
    def _holding(self, keys: Tensor, values: Tensor) -> Self:
        """The same tokens, in other memory."""

    def _rooms(self, keys: Tensor, values: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """The memory, made for `size` tokens like these if there is none yet."""
        if self.keys is not None and self.values is not None:
            return self.keys, self.values
        return keys.new_empty(*keys.shape[:2], size, keys.shape[3]), values.new_empty(
            *values.shape[:2], size, values.shape[3]
        )


@dataclass(frozen=True, eq=False)
class KeyValues(Attendable):
    """Keys and values of all tokens so far, filled from the left."""

    capacity: int
    length: int = 0
    keys: Tensor | None = None
    values: Tensor | None = None

    def extended(self, keys: Tensor, values: Tensor) -> KeyValues:
        end = self.length + keys.shape[2]
        if end > self.capacity:
            raise GptlabError(
                f"{end} tokens do not fit into a decoding state with room for {self.capacity}.",
                code="decoding-room", value=end, allowed=self.capacity,
            )  # fmt: skip
        rooms = self._rooms(keys, values, self.capacity)
        for room, new in zip(rooms, (keys, values), strict=True):
            room[:, :, self.length : end] = new
        return replace(self, length=end, keys=rooms[0], values=rooms[1])

    def seen(self) -> tuple[Tensor, Tensor, Tensor]:
        assert self.keys is not None and self.values is not None
        positions = torch.arange(self.length, device=self.keys.device)
        return self.keys[:, :, : self.length], self.values[:, :, : self.length], positions

    def _holding(self, keys: Tensor, values: Tensor) -> KeyValues:
        return replace(self, keys=keys, values=values)

    def cropped(self, length: int) -> KeyValues:
        if not 0 <= length <= self.length:
            return super().cropped(length)  # which refuses it
        return replace(self, length=length)


@dataclass(frozen=True, eq=False)
class Ring(Attendable):
    """Keys and values of the last `window` tokens: those of token t lie at t % window, in the place of older ones."""

    window: int
    length: int = 0
    keys: Tensor | None = None
    values: Tensor | None = None
    newest: tuple[Tensor, Tensor, Tensor] | None = None  # of several new tokens: what they may look at

    def extended(self, keys: Tensor, values: Tensor) -> Ring:
        count = keys.shape[2]
        positions = torch.arange(self.length, self.length + count, device=keys.device)
        newest = None
        if count > 1:
            newest = (keys, values, positions)
            if self.length:
                old = replace(self, newest=None).seen()
                joined = [torch.cat((old[i], newest[i]), dim=-2) for i in (0, 1)]
                newest = (joined[0], joined[1], torch.cat((old[2], positions)))
        rooms = self._rooms(keys, values, self.window)
        kept = positions[-self.window :] % self.window
        for room, new in zip(rooms, (keys, values), strict=True):
            room[:, :, kept] = new[:, :, -self.window :]
        return replace(self, length=self.length + count, keys=rooms[0], values=rooms[1], newest=newest)

    def seen(self) -> tuple[Tensor, Tensor, Tensor]:
        if self.newest is not None:
            return self.newest
        assert self.keys is not None and self.values is not None
        places = torch.arange(min(self.length, self.window), device=self.keys.device)
        last = self.length - 1
        positions = last - (last - places) % self.window
        return self.keys[:, :, : len(places)], self.values[:, :, : len(places)], positions

    def _holding(self, keys: Tensor, values: Tensor) -> Ring:
        return replace(self, keys=keys, values=values, newest=None)

    def cropped(self, length: int) -> Ring:
        if not 0 <= length <= self.length or self.length > self.window:
            return super().cropped(length)  # which refuses it, where something would be missing
        return replace(self, length=length, newest=None)


class Decoding(NamedTuple):
    """The state of a whole model: for each block, what its parts remember, by their names."""

    length: int
    blocks: tuple[Mapping[str, State], ...]

    def reordered(self, rows: Tensor) -> Decoding:
        """Row i of the new state is row rows[i] of this one."""
        return self._each(lambda state: state.reordered(rows))

    def joined(self, other: Decoding) -> Decoding:
        """The rows of this one, then those of `other`, which has seen as many tokens."""
        assert self.length == other.length
        pairs = zip(self.blocks, other.blocks, strict=True)
        return self._replace(
            blocks=tuple({name: state.joined(theirs[name]) for name, state in own.items()} for own, theirs in pairs)
        )

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
