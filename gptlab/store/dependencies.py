"""What a run depends on beside its config: its code and its data. Recorded with every stretch of it, and compared
whenever it is skipped, resumed, compared or repeated.

The code is a hash over what can change a number, cheap and without git: those of gptlab's own files that can, the
modules named by `plugins` and the entry points, and torch's version; not the modules that a plugin imports in turn.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

from gptlab.registry import ENTRY_POINT_GROUP
from gptlab.store.data_files import Look
from gptlab.store.result import Result

# What can change a number. All else may be edited and marks no finished run: what reads results or talks to the user,
# and what `declare` makes of the user's words, which is the config that the id covers.
MAKES_NUMBERS = (
    "config.py", "data", "kernels.py", "model", "probes", "registry.py", "running/execute.py", "signatures.py",
    "streams.py", "training",
)  # fmt: skip


def code(plugins: Sequence[str] = ()) -> dict[str, str]:
    """What is hashed -> its SHA-256 (hex) or version; only what can be found."""
    modules = [*plugins, *_entry_points()]
    found = {"gptlab": _own(), "torch": _version("torch"), **{name: _module(name) for name in modules}}
    return {name: value for name, value in found.items() if value}


def changes(result: Result, look: Look) -> list[str]:
    """What has changed since a run that is over, in words: of its code and of the files that its data came from."""
    known = tuple(result.code.items())
    if known not in look.code:
        plugins = [name for name in result.code if name not in ("gptlab", "torch")]
        look.code[known] = code_changes(result.code, plugins)
    return [*look.code[known], *(look.changes(result.data) if result.data.files else [])]


def code_changes(recorded: Mapping[str, Any], plugins: Sequence[str] = ()) -> list[str]:
    """What has changed since `recorded` was written, in words; empty for nothing, or nothing to compare."""
    current = code(plugins) if recorded else {}
    words = []
    for name, value in recorded.items():
        if name in current and current[name] != value:
            words.append(f"{name} {value} -> {current[name]}" if name == "torch" else f"the code of {name}")
    return words


@functools.cache
def _own() -> str:
    root = Path(__file__).parents[1]
    return _digest(root, (path for path in root.rglob("*.py") if _counts(path.relative_to(root))))


def _counts(path: Path) -> bool:
    return path.as_posix() in MAKES_NUMBERS or path.parts[0] in MAKES_NUMBERS


@functools.cache
def _module(name: str) -> str:
    loaded = sys.modules.get(name)
    origin = getattr(loaded, "__file__", None)
    if origin is None:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):
            return ""
        origin = spec and spec.origin
    if not origin or not Path(origin).is_file():
        return ""
    path = Path(origin)
    return _digest(path.parent, path.parent.rglob("*.py") if path.name == "__init__.py" else [path])


def _digest(root: Path, paths: Iterable[Path]) -> str:
    total = sha256()
    for path in sorted(paths):
        total.update(f"{path.relative_to(root).as_posix()}\0".encode())
        total.update(sha256(path.read_bytes()).digest())
    return total.hexdigest()


@functools.cache
def _entry_points() -> tuple[str, ...]:
    return tuple(sorted({point.module for point in entry_points(group=ENTRY_POINT_GROUP)}))


@functools.cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
