"""Queries, keys and values of a layer as one product in place of three.

The three weights stay parameters of their own, under the book's names. At each step they are laid side by side, which
costs little beside the product, and one large product runs faster than three small ones on some processors and shapes.
Its results differ in the last bits where the library cuts the larger product into other pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gptlab.model.attention import MultiHeadAttention


@contextmanager
def joined_qkv(wanted: bool) -> Iterator[None]:
    """Within this context, every attention layer makes one product where it can."""
    before = MultiHeadAttention.joined
    MultiHeadAttention.joined = wanted
    try:
        yield
    finally:
        MultiHeadAttention.joined = before
