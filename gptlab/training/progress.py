"""A run tells how far it is to whoever listens, a few times a second. Without a listener nothing happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from gptlab.texts import clock


@dataclass(frozen=True)
class Tick:
    """Where a training stands. `total`: steps of the run, None where seconds decide."""

    step: int
    total: int | None
    loss: float
    tokens_per_second: float
    seconds_left: float | None

    def __str__(self) -> str:
        """`step 300/1000  loss 2.311  15,300 tokens/s  0:42 left`"""
        parts = [f"step {self.step}" + (f"/{self.total}" if self.total else ""), f"loss {self.loss:.4g}"]
        parts.append(f"{self.tokens_per_second:,.0f} tokens/s")
        if self.seconds_left is not None:
            parts.append(f"{clock(self.seconds_left)} left")
        return "  ".join(parts)


Listener = Callable[[Tick], None]
_listener: ContextVar[Listener | None] = ContextVar("progress_listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within this context, `listener` is told of every training in this thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def listener() -> Listener | None:
    """Whoever listens now."""
    return _listener.get()
