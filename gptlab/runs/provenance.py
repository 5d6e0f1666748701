"""Where a run came from: versions, code, machine. Nothing of the environment's variables is kept."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("gptlab", "torch", "numpy", "tiktoken", "hydra-core", "omegaconf", "pandas", "matplotlib")


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@functools.cache
def provenance() -> dict[str, Any]:
    """What does not change while the process lives."""
    import torch

    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "host": platform.node(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "git": _git(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git() -> dict[str, Any] | None:
    """Commit and uncommitted changes of the checkout that gptlab runs from; None when it is an installed copy."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None

    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, timeout=10, check=True).stdout

    try:
        diff = git("diff", "HEAD", "--binary")
        return {
            "commit": git("rev-parse", "HEAD").decode().strip(),
            "dirty": bool(git("status", "--porcelain").strip()),
            "diff_sha256": sha256(diff).hexdigest() if diff else None,
        }
    except (OSError, subprocess.SubprocessError):
        return None
