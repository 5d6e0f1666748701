"""How much memory a model takes, from its skeleton, and how much there is."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from torch import nn

_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def weight_bytes(model: nn.Module) -> int:
    """Bytes of all parameters, a shared one counted once."""
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def physical_memory() -> int | None:
    """Bytes of memory of this machine, or of its container where that has less; None if the system does not tell."""
    limits = [_read_limit(path) for path in _CONTAINER_LIMITS]
    with contextlib.suppress(AttributeError, OSError, ValueError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min((limit for limit in limits if limit), default=None)


def _read_limit(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):  # no such file, or the word `max`
        return None
