"""What a run depends on beside its config: its code and its data. Recorded with every stretch of it, and compared
whenever it is skipped, resumed, compared or repeated.

The code is a hash over what can change a number, cheap and without git: those of gptlab's own files that can, the
modules named by `plugins` and the entry points, with what they import of their own folder, and torch's version.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    "config.py", "data", "generating", "kernels.py", "model", "probes", "registry.py", "running/execute.py",
    "signatures.py", "streams.py", "training", "weights",
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
    files = set(path.parent.rglob("*.py") if path.name == "__init__.py" else [path])
    return _digest(path.parent, _with_imports(files, _place(name, path)))


def _place(name: str, path: Path) -> Path:
    """The folder that a module was found in: what stands beside it there is its author's, too."""
    return path.parents[min(name.count(".") + (path.name == "__init__.py"), len(path.parents) - 1)]


def _with_imports(files: set[Path], place: Path) -> set[Path]:
    """The files and, in turn, what they import of `place`. Where packages are installed, their versions stand for them.

    Read from the text, so that it is the same before and after the import; a name put together at run time is not seen.
    """
    if place.name in ("site-packages", "dist-packages"):
        return files
    left, found = list(files), set(files)
    while left:
        new = {path for path in _imported(left.pop(), place) if path.is_file()} - found
        found |= new
        left += new
    return found


def _imported(path: Path, place: Path) -> Iterator[Path]:
    """Where the modules that a file names would be below `place`, there or not; gptlab itself is hashed by itself."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [(place, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = path.parents[node.level - 1] if 0 < node.level <= len(path.parents) else place
            module = node.module or ""
            names = [(start, module), *((start, f"{module}.{alias.name}".lstrip(".")) for alias in node.names)]
        else:
            continue
        for start, name in names:
            parts = name.split(".") if name else []
            if parts and start.is_relative_to(place) and parts[0] != "gptlab":
                yield start.joinpath(*parts[:-1], f"{parts[-1]}.py")
                for depth in range(len(parts)):  # importing a module runs the packages around it
                    yield start.joinpath(*parts[: depth + 1], "__init__.py")
            elif start.is_relative_to(place) and start != place:
                yield start / "__init__.py"  # from . import name


def _digest(root: Path, paths: Iterable[Path]) -> str:
    total = sha256()
    for path in sorted(paths):
        total.update(f"{_below(path, root)}\0".encode())
        total.update(sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _below(path: Path, root: Path) -> str:
    """The same on every machine: from the folder of the plugin, which may be one further in."""
    return Path(os.path.relpath(path, root)).as_posix()


@functools.cache
def _entry_points() -> tuple[str, ...]:
    return tuple(sorted({point.module for point in entry_points(group=ENTRY_POINT_GROUP)}))


@functools.cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
