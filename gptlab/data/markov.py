"""`markov`: each id depends on the last `order` ids, by a table that was drawn once.

The chain is stationary, so a row has no start: its first id has the stationary distribution, and the floor falls with
each id that is known until `order` of them are. From there on it is the conditional entropy of the chain.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from gptlab.data.automaton import Automaton, Tables
from gptlab.data.language import LanguageSource
from gptlab.data.tokenizer import IdsTokenizer
from gptlab.errors import wrong_value
from gptlab.registry import register
from gptlab.streams import generator

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_LARGEST = 2**22  # entries of the table: 32 MiB


def transitions(order: int, symbols: int, sharpness: float, table_seed: int) -> npt.NDArray[np.float64]:
    """(V**k, V): softmax of `sharpness` times N(0, 1). Row number: the last k ids as digits, the oldest first."""
    import torch

    stream = generator(table_seed, "markov")
    logits = sharpness * torch.randn(symbols**order, symbols, generator=stream, dtype=torch.float64)
    return torch.softmax(logits, dim=1).numpy()


def stationary(table: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(V**k,): how often each context of k ids occurs. Every entry of the table is positive, so there is one answer."""
    import numpy as np

    contexts, symbols = table.shape
    share = np.full(contexts, 1 / contexts)
    for _ in range(10_000):
        # Joint of k + 1 ids; the oldest is summed out.
        after = (share[:, None] * table).reshape(symbols, contexts).sum(axis=0)
        after /= after.sum()
        if np.abs(after - share).sum() < 1e-15:
            break
        share = after
    return after


def tables(table: npt.NDArray[np.float64]) -> Tables:
    """The chain as an automaton: the states are all contexts of 0 to k ids, shortest first."""
    import numpy as np

    contexts, symbols = table.shape
    blocks = [stationary(table)]  # of k ids, then of k - 1 down to 0
    while len(blocks[-1]) > 1:
        blocks.append(blocks[-1].reshape(-1, symbols).sum(axis=1))
    blocks.reverse()
    probability, follows, first = [], [], 0
    for shorter, longer in pairwise(blocks):
        probability.append(longer.reshape(-1, symbols) / shorter[:, None])
        first += len(shorter)
        follows.append(first + np.arange(len(longer)).reshape(-1, symbols))
    probability.append(table)
    follows.append(first + np.arange(contexts * symbols).reshape(-1, symbols) % contexts)  # the oldest id drops out
    rows = np.concatenate(probability)
    return Tables(rows / rows.sum(axis=1, keepdims=True), np.concatenate(follows))


@register("data", "markov", tokenizers=("ids",))
def markov(
    vocab_size: int, order: int = 2, symbols: int = 32, sharpness: float = 2.0, table_seed: int = 0
) -> LanguageSource:
    """Each id depends on the last `order` ids."""
    where = "data.options"
    if order < 1:
        raise wrong_value(f"{where}.order", order, "must be 1 or more.", code="markov-order")
    if symbols < 2:
        raise wrong_value(f"{where}.symbols", symbols, "must be 2 or more.", code="markov-symbols")
    if not 0 <= sharpness <= 20:  # exp(-20 * 10) is still far from 0, so that every id can follow every other
        raise wrong_value(f"{where}.sharpness", sharpness, "must be between 0 and 20.", code="markov-sharpness")
    if order > 22 or symbols ** (order + 1) > _LARGEST:
        raise wrong_value(
            f"{where}.order",
            order,
            f"a table of {symbols} ids (data.options.symbols) after {order} has more than {_LARGEST:,} entries.",
            code="markov-table-too-large",
            symbols=symbols,
            largest=_LARGEST,
        )
    declared = {"version": 1, "order": order, "symbols": symbols, "sharpness": sharpness, "table_seed": table_seed}
    language = Automaton(symbols, lambda: tables(transitions(order, symbols, sharpness, table_seed)))
    return LanguageSource("markov", language, IdsTokenizer(symbols), vocab_size, declared)
