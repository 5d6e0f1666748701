"""The house holds: no room above 25 files, no import circle between files, and a page that names every room."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "gptlab"
LARGEST = 25  # files of a folder beside its __init__.py, its subfolders apart
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def imports(name: str) -> Iterator[str]:
    """The modules of gptlab that the file of `name` imports, anywhere in it, type checking aside."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            # `from package import module` imports the module, and the package only where it has the name itself.
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (module for module in inner if module in MODULES)
            if any(module not in MODULES for module in inner):
                yield node.module


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Groups of files that reach each other (Tarjan's strongly connected components of two or more)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in arrows[name]:
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            place = stack.index(name)
            group = stack[place:]
            del stack[place:]
            if len(group) > 1 or name in arrows[name]:
                found.append(sorted(group))

    for name in arrows:
        if name not in order:
            visit(name)
    return found


def test_the_search_finds_circles() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"e"}}) == [["a", "b", "c"], ["e"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
    assert set(imports("gptlab.cli.plan")) >= {"gptlab.planning.plan", "gptlab.planning.costs"}


def test_no_import_circle_between_files() -> None:
    arrows = {name: set(imports(name)) - {name} for name in MODULES}
    assert circles(arrows) == []


def test_no_room_is_too_large() -> None:
    sizes = {
        folder: len(list(folder.glob("[!_]*.py"))) for folder in (PACKAGE, *PACKAGE.rglob("*/")) if folder.is_dir()
    }
    assert {str(folder): size for folder, size in sizes.items() if size > LARGEST} == {}


def test_the_map_names_every_room_once() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = re.findall(r"^\| `([\w/]+)/` \|", page, flags=re.MULTILINE)
    there = {path.parent.relative_to(PACKAGE).as_posix() for path in MODULES.values() if path.name == "__init__.py"}
    assert sorted(rooms) == sorted(there - {"."})
    ground = re.findall(r"^\| `(\w+)\.py` \|", page, flags=re.MULTILINE)
    assert sorted(ground) == sorted(p.stem for p in PACKAGE.glob("*.py") if not p.stem.startswith("__"))


def test_documents_for_programs_are_written_in_one_way() -> None:
    """Which has a word for NaN and the infinities; a config for transformers is theirs."""
    own = {"store/json_text.py", "running/exporting.py", "data/gpt2.py"}
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "json.dumps"
        and any(keyword.arg == "indent" for keyword in node.keywords)
        and path.relative_to(PACKAGE).as_posix() not in own
    ]  # fmt: skip
    assert found == []
