"""`induction`: a row of different ids at random, then a stretch of it once more.

    7 2 9 4 1 8 | 9 4 1      the stretch starts anywhere, and where it starts the row does not say

Of a row of L = T + 1 ids the last m = L // 3 are the copy. An id of the first part differs from all before it:
ln(V - i) nats at place i. The first copied id (the cue) tells the place: ln(L - 2m + 1) nats. From there on nothing is
left to chance: 0 nats.

If the whole row were repeated from its start, as in the usual picture of the task, one layer would do: attend to the
token half a row back, whatever it is. Here the distance changes from row to row, and the way to 0 is that of an
induction head: one layer notes at each token which came before it, a second one looks up the present token there.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from gptlab.data.language import Language, LanguageSource, Strings
from gptlab.data.tokenizer import IdsTokenizer
from gptlab.errors import wrong_value
from gptlab.registry import register

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch


class Induction(Language):
    """The language over `size` ids. Rows need about two thirds as many different ids as they are long."""

    def __init__(self, size: int) -> None:
        self.size = size

    def check(self, context: int) -> None:
        """ConfigError when a row would need more different ids than there are."""
        first, _ = _parts(context)
        if first > self.size:
            raise wrong_value(
                "data.options.symbols",
                self.size,
                f"rows of context {context} start with {first} different ids. "
                "Choose more symbols, or a smaller context.",
                code="induction-too-few-symbols",
                context=context,
                first=first,
            )

    def by_position(self, context: int) -> list[float]:
        """Every choice is uniform: the logarithm of how many there are."""
        self.check(context)
        first, copied = _parts(context)
        cue_and_rest = [first - copied + 1, *[1] * (copied - 1)] if copied else []
        choices = [self.size - i for i in range(1, first)] + cue_and_rest
        return [math.log(number) for number in choices]

    def unigram(self, context: int) -> float:
        """No id is special, so at every place each is equally likely."""
        return math.log(self.size)

    def draw(self, rows: int, context: int, randomness: torch.Generator) -> Strings:
        """The first ids of a random order of all, then a stretch of them."""
        import torch

        self.check(context)
        first, copied = _parts(context)
        order = torch.rand(rows, self.size, generator=randomness, dtype=torch.float64).argsort(dim=1)[:, :first]
        start = torch.randint(first - copied + 1, (rows, 1), generator=randomness)
        return self._strings(order.numpy(), start.numpy(), context)

    def strings(self, context: int, limit: int) -> Strings | None:
        """Every order of the first part with every stretch of it."""
        import numpy as np

        self.check(context)
        first, copied = _parts(context)
        stretches = first - copied + 1 if copied else 1
        if math.perm(self.size, first) * stretches > limit:
            return None
        rows = itertools.product(itertools.permutations(range(self.size), first), range(stretches))
        orders, starts = zip(*rows, strict=True)
        found = self._strings(np.array(orders), np.array(starts)[:, None], context)
        return Strings(found.ids, found.surprisal, np.full(len(found.ids), 1 / len(found.ids)))

    def _strings(self, order: npt.NDArray[np.int64], start: npt.NDArray[np.int64], context: int) -> Strings:
        import numpy as np

        copied = _parts(context)[1]
        copy = np.take_along_axis(order, start + np.arange(copied), axis=1)
        surprisal = np.tile(np.array(self.by_position(context)), (len(order), 1))
        return Strings(np.concatenate([order, copy], axis=1), surprisal)


def _parts(context: int) -> tuple[int, int]:
    """(first part, copy) of a row of context + 1 ids."""
    copied = (context + 1) // 3
    return context + 1 - copied, copied


@register("data", "induction", tokenizers=("ids",))
def induction(vocab_size: int, symbols: int = 64) -> LanguageSource:
    """Random ids, then a stretch of them once more: to copy it takes two layers."""
    if symbols < 2:
        raise wrong_value("data.options.symbols", symbols, "must be 2 or more.", code="induction-symbols")
    declared = {"version": 1, "symbols": symbols}
    return LanguageSource("induction", Induction(symbols), IdsTokenizer(symbols), vocab_size, declared)
