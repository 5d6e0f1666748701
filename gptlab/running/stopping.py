"""Being asked to stop: SIGTERM and SIGHUP end a run as Ctrl-C does, recorded and in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_ASKING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Stopped(KeyboardInterrupt):
    """A signal asked this process to end; the text names it."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Within the body, SIGTERM and SIGHUP raise Stopped where the program stands. Only the main thread can do this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, Any] = {number: signal.signal(number, _stop) for number in _ASKING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped(f"stopped by {signal.Signals(number).name}")
