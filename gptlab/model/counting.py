"""What a part may say of its own cost, where torch cannot see what it does, needs values for it, or does some in vain.

Counted are matrix products, 2 for each multiply-add, of one row of `tokens` tokens.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class CountsItself(Protocol):
    """A part whose FLOPs are what it says. It is not computed to count them; its output has its first input's shape."""

    def flops(self, tokens: int) -> int: ...


@runtime_checkable
class CountsMasked(Protocol):
    """A part whose mask makes some of what it computes vain: (beyond its window, and the rest: the causal half)."""

    def masked_flops(self, tokens: int) -> tuple[int, int]: ...


@runtime_checkable
class HasIdle(Protocol):
    """A part some of whose parameters a token passes by, as those of experts that it does not go to."""

    def idle_parameters(self) -> int:
        """How many."""
