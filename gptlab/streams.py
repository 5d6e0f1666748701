"""Randomness by name: a seed stands for a set of independent streams, one for each purpose.

`generator(123, "data")` and `generator(123, "init", "out_head.weight")` never share numbers, and drawing more from one
moves no other. The map from names to numbers is part of gptlab's contract: the same on every platform and Python.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MOST_KEPT = 2**30  # bytes of draws that `keeping` holds at a time


def stream_seed(seed: int, *names: str | int) -> int:
    """The 63-bit seed of the stream that `seed` and `names` stand for. `1` and `"1"` are different names."""
    # JSON keeps apart what plain joining would mix up: ("a", "b") and ("ab",).
    key = json.dumps([seed, *names]).encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:8], "big") >> 1  # 63 bits: torch takes seeds below 2**63


def generator(seed: int, *names: str | int) -> torch.Generator:
    """A fresh CPU generator at the start of the stream."""
    import torch

    return torch.Generator().manual_seed(stream_seed(seed, *names))


@contextmanager
def forked(seed: int, *names: str | int) -> Iterator[None]:
    """Run the body with torch's global CPU generator at the start of the stream; put its old state back afterwards.

    For code that takes no generator (dropout). The generators of `random`, numpy and other devices are left alone.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed: that one seeds every device, and only the CPU's state is put back.
        torch.default_generator.manual_seed(stream_seed(seed, *names))
        yield


@dataclass
class Kept:
    """What was drawn from one stream, for those who draw the same again: `size` bytes, as far as anyone has come.

    `states`: of the generator before each draw, by its number, and after the last one; `values`: of some of them.
    """

    size: int
    states: list[torch.Tensor] = field(default_factory=list)
    values: dict[int, torch.Tensor] = field(default_factory=dict)


_kept: ContextVar[dict[Hashable, Kept] | None] = ContextVar("kept", default=None)


@contextmanager
def keeping() -> Iterator[None]:
    """Within this context, what is drawn may be kept for others who draw the same. It changes no number."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def kept(key: Hashable, size: int) -> Kept | None:
    """What is kept under `key`, empty at first; the least recently used makes room for it. None: nothing is kept."""
    store = _kept.get()
    if store is None or size > MOST_KEPT:
        return None
    found = store.pop(key, None) or Kept(size)
    while size + sum(other.size for other in store.values()) > MOST_KEPT:
        del store[next(iter(store))]
    store[key] = found  # the last one is the newest
    return found
