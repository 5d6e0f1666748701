"""The time, as it is written down."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def stamp() -> str:
    """The local time to the microsecond, fit for a file name."""
    return datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
