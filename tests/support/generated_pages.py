"""The parts of docs/ that are made from the code. `python -m tests.support.generated_pages` writes them anew."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import io
import re
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gptlab import config as schema
from gptlab.cli import main
from gptlab.config import Config
from gptlab.identity import NOT_IDENTITY
from gptlab.registry import KINDS

DOCS = Path(__file__).resolve().parents[2] / "docs"
_REGION = re.compile(
    r"(<!-- generated: (?P<name>[^>]+) -->\n\n)(.*?)(\n\n<!-- end of what is generated -->)", re.DOTALL
)


def components() -> str:
    """What `gptlab components --format md` prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["components", "--format", "md"]) == 0
    return out.getvalue().strip()


def keys() -> str:
    """Every key of the schema: default, what is allowed, and the comment beside it in gptlab/config.py."""
    return "\n\n".join("\n".join(_table(path, node, kind)) for path, node, kind in _sections("", Config(), Config))


def axes() -> str:
    """Every ablation: source, published models, tests, cost. Counts a hundred models: some seconds."""
    from tests.support.axes import table

    return table()


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "components.md": {"gptlab components --format md": components},
    "keys.md": {"gptlab/config.py": keys},
    "axes.md": {"conf/ablation": axes},
}


def renewed(page: str) -> str:
    """The page with its generated regions as the code has them now."""
    makers = PAGES[page]
    text = (DOCS / page).read_text(encoding="utf-8")
    assert sorted(match["name"] for match in _REGION.finditer(text)) == sorted(makers), page
    return _REGION.sub(lambda match: match[1] + makers[match["name"]]() + match[4], text)


def _sections(path: str, node: Any, kind: type) -> Iterator[tuple[str, Any, type]]:
    """(dotted path, instance, its class) of the root and of every group below it, parents first."""
    yield path, node, kind
    for f in dataclasses.fields(node):
        value = getattr(node, f.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from _sections(f"{path}.{f.name}".lstrip("."), value, type(value))


def _table(path: str, node: Any, kind: type) -> Iterator[str]:
    rows = [f for f in dataclasses.fields(node) if not dataclasses.is_dataclass(getattr(node, f.name))]
    if not rows:
        return
    said, types_ = _comments(kind), typing.get_type_hints(kind)
    yield f"## {path or 'Beside the groups'}"
    yield ""
    yield "| key | default | allowed | |"
    yield "|---|---|---|---|"
    for f in rows:
        value = getattr(node, f.name)
        key = f"{path}.{f.name}".lstrip(".")
        about = said.get(f.name, "").replace("None: ", "null: ")
        allowed = _allowed(types_[f.name], f.metadata)
        kind_of_it = next((name for name, known in KINDS.items() if known.chosen_by == key), "")
        if kind_of_it:
            about = about or KINDS[kind_of_it].meaning
            allowed = allowed.replace("text", f"a name: `gptlab components {kind_of_it}`")
        if key in NOT_IDENTITY:
            about = f"{about}{'; ' if about else ''}no part of a run's id"
        cells = (f"`{key}`", f"`{_say(value)}`", allowed, about)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _comments(kind: type) -> dict[str, str]:
    """Field -> the comment behind it."""
    source = inspect.getsource(kind)
    lines = source.splitlines()
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for statement in body.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            comment = lines[(statement.end_lineno or 1) - 1].partition("  # ")[2]
            found[statement.target.id] = comment.strip()
    return found


def _allowed(kind: Any, rules: Any) -> str:
    if "choices" in rules:
        return ", ".join(f"`{choice}`" for choice in rules["choices"])
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    names = {int: "whole number", float: "number", bool: "`true`, `false`", str: "text", type(None): "`null`"}
    said = [
        names.get(option) or ("list" if typing.get_origin(option) is list else "keys and values") for option in options
    ]
    low, high, above = rules.get("low"), rules.get("high"), rules.get("above")
    bounds = ("low" in rules or "above" in rules) and schema._range_words(low, high, above)
    return ", ".join([f"{said[0]} {bounds}" if bounds else said[0], *said[1:]])


def _say(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value) if value != "" else "''"


if __name__ == "__main__":
    for page in PAGES:
        (DOCS / page).write_text(renewed(page), encoding="utf-8")
