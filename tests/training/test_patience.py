"""A request to stop waits for the end of a step; a second Ctrl-C does not wait; and nothing of it is left behind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gptlab.training.patience import Patience


class StopError(Exception):
    """What the handlers of this test raise."""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[dict[int, Any]]:
    """Both signals raise `StopError` with their number."""

    def stop(number: int, frame: object) -> None:
        raise StopError(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop) for number in numbers}
    yield {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_request_waits_until_it_is_delivered(number: signal.Signals) -> None:
    with Patience() as patience:
        signal.raise_signal(number)
        assert patience.asked == number
        with pytest.raises(StopError) as stopped:
            patience.deliver()
        assert stopped.value.args == (number,) and patience.asked is None
        patience.deliver()  # once


def training(*numbers: int, error: type[Exception] | None = None) -> list[str]:
    """What a training that these signals reach went through."""
    went = ["began"]
    try:
        with Patience():
            for number in numbers:
                signal.raise_signal(number)
                went.append("went on")
            if error:
                raise error
    except StopError:
        went.append("stopped")
    return went


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_ctrl_c_acts_at_once(first: signal.Signals) -> None:
    assert training(first, signal.SIGINT) == ["began", "went on", "stopped"]


def test_a_second_sigterm_waits_too() -> None:
    assert training(signal.SIGTERM, signal.SIGTERM) == ["began", "went on", "went on", "stopped"]


def test_what_came_during_the_last_step_is_delivered_at_the_end() -> None:
    assert training(signal.SIGINT) == ["began", "went on", "stopped"]
    assert training() == ["began"]


def test_an_error_of_the_step_is_not_hidden_by_the_request() -> None:
    with pytest.raises(ZeroDivisionError):
        training(signal.SIGINT, error=ZeroDivisionError)


def test_the_handlers_are_put_back(handlers: dict[int, Any]) -> None:
    with Patience():
        assert all(signal.getsignal(number) != handler for number, handler in handlers.items())
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with Patience() as patience:
        signal.raise_signal(signal.SIGTERM)
        assert patience.asked is None


def test_another_thread_changes_nothing(handlers: dict[int, Any]) -> None:
    found: list[Any] = []

    def body() -> None:
        with Patience():
            found.append({number: signal.getsignal(number) for number in handlers})

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert found == [handlers]
