"""A request to stop waits for the end of a step, so that what has been trained can be saved first."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_ASKING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Patience:
    """Within this context a first SIGINT, SIGTERM or SIGHUP is noted; `deliver` does what it would have done at once.

    A second SIGINT, from somebody who does not want to wait, acts at once. What is ignored stays ignored. Only the main
    thread can do this; elsewhere nothing changes.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self._handlers: dict[int, Any] = {}

    def deliver(self) -> None:
        """Raise what the handler of the signal raises."""
        number, self.asked = self.asked, None
        if number is not None:
            self._handlers[number](number, None)

    def __enter__(self) -> Patience:
        if threading.current_thread() is threading.main_thread():
            self._handlers = {n: handler for n in _ASKING if callable(handler := signal.getsignal(n))}
            for number in self._handlers:
                signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if error is None:
            self.deliver()  # it came during the last step

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked is not None and number == signal.SIGINT:
            self._handlers[number](number, frame)
        self.asked = number
