"""Randomness by name: a seed stands for a set of independent streams, one for each purpose.

`generator(123, "data")` and `generator(123, "init", "out_head.weight")` never share numbers, and drawing more from one
moves no other. The map from names to numbers is part of gptlab's contract: the same on every platform and Python.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


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
