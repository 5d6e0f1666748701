"""Text as one long row of token ids, held in memory or mapped from a file, and its split in two parts."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gptlab.streams import stream_seed

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_COUNTED_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Corpus:
    """Ids of all documents, one after the other."""

    ids: npt.NDArray[Any]  # (N,) uint16 or uint32
    ends: npt.NDArray[np.int64]  # (documents,): where in `ids` each document ends
    largest: int  # the largest id


@dataclass(frozen=True)
class Part:
    """One side of the split: pieces of a corpus, read as if they followed each other."""

    ids: npt.NDArray[Any]
    starts: npt.NDArray[np.int64]  # (pieces,): where in `ids` each piece starts
    stops: npt.NDArray[np.int64]  # (pieces,): how many tokens the pieces have up to the end of each
    ends: npt.NDArray[np.int64]  # (documents,): where in `ids` each document of the corpus ends

    def __len__(self) -> int:
        return int(self.stops[-1])

    def rows(self, places: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
        """(B, length) int64: the tokens from each of B places on. Every place is at most len(self) - length."""
        import numpy as np

        return self.ids[self._index(places, length)].astype(np.int64)

    def documents(self, places: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
        """(B, length) int64: the documents that those tokens are of."""
        import numpy as np

        return np.searchsorted(self.ends, self._index(places, length), side="right").astype(np.int64)

    def _index(self, places: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
        import numpy as np

        index: npt.NDArray[np.int64] = places[:, None] + np.arange(length)
        if len(self.stops) == 1:
            index += self.starts[0]
        else:
            piece = np.searchsorted(self.stops, index, side="right")
            index += (self.starts - np.concatenate([[0], self.stops[:-1]]))[piece]
        return index

    @cached_property
    def unigram(self) -> float:
        """Entropy of the frequencies of ids, in nats."""
        import numpy as np

        counts = np.zeros(1, dtype=np.int64)
        lengths = np.diff(self.stops, prepend=0)
        for start, length in zip(self.starts, lengths, strict=True):
            for begin in range(int(start), int(start + length), _COUNTED_AT_ONCE):
                found = np.bincount(self.ids[begin : min(begin + _COUNTED_AT_ONCE, int(start + length))])
                if len(found) > len(counts):
                    counts = np.pad(counts, (0, len(found) - len(counts)))
                counts[: len(found)] += found
        shares = counts[counts > 0] / len(self)
        return float(-(shares * np.log(shares)).sum())


def split(corpus: Corpus, how: str, fraction: float, key: str, characters: Sequence[int]) -> tuple[Part, Part]:
    """(training, validation). `position`: validation is the end. `document`: documents that `key` draws by lot, as many
    as `fraction` of all `characters` (of each document) can hold but at least one; there must be two or more. Tokens do
    not count there, so that every tokenizer holds out the same text."""
    import numpy as np

    total = len(corpus.ids)
    if how == "position":
        cut = total - max(1, math.floor(total * fraction))
        return _part(corpus, [(0, cut)]), _part(corpus, [(cut, total)])
    starts = np.concatenate([[0], corpus.ends[:-1]])
    lengths = (corpus.ends - starts).tolist()
    sizes = [
        size if length else 0 for size, length in zip(characters, lengths, strict=False)
    ]  # trailing ones are empty
    chosen = _drawn(sizes, fraction * sum(sizes), key)
    spans = list(zip(starts.tolist(), corpus.ends.tolist(), strict=True))
    sides = [[span for i, span in enumerate(spans) if (i in chosen) == side] for side in (False, True)]
    return _part(corpus, sides[0]), _part(corpus, sides[1])


def _drawn(lengths: list[int], room: float, key: str) -> set[int]:
    draw = random.Random(stream_seed(0, "validation", key))
    order = sorted(range(len(lengths)), key=[draw.random() for _ in lengths].__getitem__)
    chosen, taken = set[int](), 0
    for i in order:
        if lengths[i] and taken + lengths[i] <= room:
            chosen.add(i)
            taken += lengths[i]
    return chosen or {min((i for i in order if lengths[i]), key=lengths.__getitem__)}


def _part(corpus: Corpus, spans: Iterable[tuple[int, int]]) -> Part:
    import numpy as np

    joined = list(_joined(spans)) or [(0, 0)]
    starts = np.array([start for start, _ in joined], dtype=np.int64)
    stops = np.cumsum([stop - start for start, stop in joined], dtype=np.int64)
    return Part(corpus.ids, starts, stops, corpus.ends)


def _joined(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Spans without the empty ones, neighbours made one."""
    held: tuple[int, int] | None = None
    for start, stop in spans:
        if start == stop:
            continue
        if held and held[1] == start:
            held = (held[0], stop)
            continue
        if held:
            yield held
        held = (start, stop)
    if held:
        yield held
