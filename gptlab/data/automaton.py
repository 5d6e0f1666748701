"""Languages that a finite automaton speaks: a state says how likely each id is, and the id says which state is next.

So the state is a function of what has been said, and entropies are exact: they follow the distribution over states.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from gptlab.data.language import Language, Strings

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch


class Tables:
    """An automaton as arrays. State 0 says the first id of a row, which is no target."""

    def __init__(self, probability: npt.NDArray[np.float64], follows: npt.NDArray[np.int64]) -> None:
        """`probability` (S, V): of each id in each state; rows add up to 1. `follows` (S, V): the state after it."""
        import numpy as np

        assert np.allclose(probability.sum(axis=1), 1, rtol=0, atol=1e-12)
        assert len(probability) < 2**20, "more would not leave 32 bits for the random part of a key in `draw`"
        self.probability, self.follows = probability, follows
        with np.errstate(divide="ignore"):
            self.surprisal = np.where(probability > 0, -np.log(probability), np.inf)
        self.entropy = -(probability * np.log(np.where(probability > 0, probability, 1))).sum(axis=1)
        # Keys that rise over the whole table: state + cumulative probability. One binary search finds state and id.
        cumulative = probability.cumsum(axis=1)
        last = probability.shape[1] - 1 - (probability[:, ::-1] > 0).argmax(axis=1)
        cumulative[np.arange(probability.shape[1]) >= last[:, None]] = 1.0  # not 0.9999999
        self.keys = (cumulative + np.arange(len(probability))[:, None]).ravel()


class Automaton(Language):
    """A language given by `tables`, which are made when they are first needed."""

    def __init__(self, size: int, make: Callable[[], Tables]) -> None:
        self.size, self._make = size, make
        self._walked = lru_cache(maxsize=None)(self._walk)

    @cached_property
    def tables(self) -> Tables:
        """The automaton."""
        return self._make()

    def by_position(self, context: int) -> list[float]:
        """The entropy of the state before each target, on average over states."""
        return list(self._walked(context)[0])

    def unigram(self, context: int) -> float:
        """Of the mean distribution of ids over the T targets."""
        return self._walked(context)[1]

    def _walk(self, context: int) -> tuple[tuple[float, ...], float]:
        """Follow the distribution over states through a row."""
        import numpy as np

        t = self.tables
        states: npt.NDArray[np.float64] = np.zeros(len(t.probability))
        states[0] = 1.0
        entropies, ids = [], np.zeros(self.size)
        for position in range(context + 1):
            joint = states[:, None] * t.probability  # (S, V)
            if position:
                entropies.append(float(states @ t.entropy))
                ids += joint.sum(axis=0)
            reached = np.bincount(t.follows.ravel(), weights=joint.ravel(), minlength=len(states))
            states = reached.astype(np.float64)
        shares = ids[ids > 0] / context
        return tuple(entropies), float(-(shares * np.log(shares)).sum())

    def draw(self, rows: int, context: int, randomness: torch.Generator) -> Strings:
        """Rows side by side, one id at a time."""
        import numpy as np
        import torch

        t = self.tables
        # Below 1 by 2**-32, so that state + number never rounds up to the next state.
        numbers = torch.rand(context + 1, rows, generator=randomness, dtype=torch.float64).numpy() * (1 - 2**-32)
        cells = np.empty((context + 1, rows), dtype=np.int64)
        state: npt.NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        follows = t.follows.ravel()
        for position in range(context + 1):
            cells[position] = np.searchsorted(t.keys, state + numbers[position], side="right")
            state = follows[cells[position]]
        ids = np.ascontiguousarray((cells % self.size).T)
        return Strings(ids, t.surprisal.ravel()[cells[1:]].T)

    def strings(self, context: int, limit: int) -> Strings | None:
        """Every path from state 0 that can be taken."""
        import numpy as np

        t = self.tables
        state, ids = np.zeros(1, dtype=np.int64), np.zeros((1, 0), dtype=np.int64)
        surprisal, probability = np.zeros((1, 0)), np.ones(1)
        for _ in range(context + 1):
            row, said = np.nonzero(t.probability[state])
            if len(row) > limit:
                return None
            cell = (state[row], said)
            ids = np.column_stack([ids[row], said])
            surprisal = np.column_stack([surprisal[row], t.surprisal[cell]])
            probability, state = probability[row] * t.probability[cell], t.follows[cell]
        return Strings(ids, surprisal[:, 1:], probability)
