"""Where a run came from: versions, code, machine. Of the environment, only the counts of threads are kept."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
import sys
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

PACKAGES = ("gptlab", "torch", "numpy", "tiktoken", "hydra-core", "omegaconf", "pandas", "matplotlib")
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_LARGEST_PATCH = 2**20  # bytes


@functools.cache
def provenance() -> dict[str, Any]:
    """What does not change while the process lives."""
    import torch

    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "installed": sorted({f"{d.metadata['Name']}=={d.version}" for d in distributions() if d.metadata["Name"]}),
        "platform": platform.platform(),
        "host": platform.node(),
        "cpu": processor(),
        "cpus": os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "threads_environment": {name: os.environ[name] for name in _THREADS if os.environ.get(name, "").isdecimal()},
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "git": git(),
        "git_reason": None if git() else why_no_git(),
    }


@functools.cache
def processor() -> str:
    """The processor's model: sums may come out differently on another one."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def git() -> dict[str, Any] | None:
    """Commit and uncommitted changes of the checkout that gptlab runs from; None when it is an installed copy."""
    found = _git()
    return found and {key: value for key, value in found.items() if key != "patch"}


def why_no_git() -> str:
    """Why a run has no commit: what a reader of `git: null` asks."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return f"gptlab runs from {root}, an installed copy without a checkout; its version and code hash say which"
    if shutil.which("git") is None:
        return "git is not installed here"
    return f"git could not read the checkout in {root} (not its owner's? see git status there)"


def patch() -> str:
    """The uncommitted changes themselves; empty when there are none, or too many to keep."""
    found = _git()
    return str(found["patch"]) if found else ""


@functools.cache
def _git() -> dict[str, Any] | None:
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None

    def ask(*arguments: str) -> bytes:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, timeout=10, check=True).stdout

    try:
        diff = ask("diff", "HEAD", "--binary")
        status = ask("status", "--porcelain", "-z").decode(errors="replace").split("\0")
        return {
            "commit": ask("rev-parse", "HEAD").decode().strip(),
            "dirty": any(status),
            "diff_sha256": sha256(diff).hexdigest() if diff else None,
            "untracked": [line[3:] for line in status if line.startswith("??")],
            "patch": diff.decode(errors="replace") if len(diff) <= _LARGEST_PATCH else "",
        }
    except (OSError, subprocess.SubprocessError):
        return None
