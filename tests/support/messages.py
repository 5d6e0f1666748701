"""Every error of gptlab, read from its source: code, class, facts and sentence.

`python -m tests.support.messages` writes tests/golden/messages.txt anew. The source is read rather than run, so that no
error is forgotten because nothing provokes it. `<name>` stands for what is known when the error is raised.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "messages.txt"
CLASSES = ("GptlabError", "ConfigError", "CheckpointError", "BusyError")
CONSTRUCTORS = {"wrong_value": "ConfigError"}  # code -> what it makes; `unknown` and others are read like any function
_HEAD = "Every code of an error, its class and facts, and its sentence. Made by `make messages`; <word> is a value."


@dataclass(frozen=True)
class Made:
    """One place that makes an error."""

    code: str
    kind: str
    facts: tuple[str, ...]
    sentence: str
    place: str = field(compare=False)


def all_made() -> list[Made]:
    """Every place in gptlab that makes an error, in the order of the files."""
    return [made for path in sorted((ROOT / "gptlab").rglob("*.py")) for made in made_in(path)]


def made_in(path: Path) -> Iterator[Made]:
    """The errors that one file makes; code "" where one was left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    owner = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        if node.func.id not in (*CLASSES, *CONSTRUCTORS) or not node.args:
            continue
        known = _assigned(_function(node, owner))
        words = [_sentence(argument, known) for argument in node.args]
        sentence = "{}={}: {}".format(*words) if node.func.id in CONSTRUCTORS else words[0]
        code = next((k.value for k in node.keywords if k.arg == "code"), None)
        if isinstance(code, ast.Name):  # errors.py itself passes one on
            continue
        facts = tuple(sorted(k.arg for k in node.keywords if k.arg and k.arg != "code"))
        facts = tuple(sorted({*facts, "key", "value"})) if node.func.id in CONSTRUCTORS else facts
        said = code.value if isinstance(code, ast.Constant) and isinstance(code.value, str) else ""
        where = f"{path.relative_to(ROOT)}:{node.lineno}"
        yield Made(said, CONSTRUCTORS.get(node.func.id, node.func.id), facts, sentence, where)


def text() -> str:
    """What the golden file has to hold."""
    lines = [_HEAD]
    for made in sorted(set(all_made()), key=lambda made: (made.code, made.sentence, made.facts)):
        head = f"{made.code}  {made.kind}  {' '.join(made.facts)}".rstrip()
        lines += ["", *textwrap.wrap(head, 120, subsequent_indent="    "), *_indented(made.sentence)]
    return "\n".join(lines) + "\n"


def _indented(sentence: str) -> list[str]:
    return textwrap.wrap(sentence, 120, initial_indent="    ", subsequent_indent="    ", break_long_words=False)


def _function(node: ast.AST, owner: dict[ast.AST, ast.AST]) -> ast.AST:
    while node in owner and not isinstance(node, ast.FunctionDef):
        node = owner[node]
    return node


def _assigned(function: ast.AST) -> dict[str, str]:
    """The texts that a function puts together in a variable before it raises."""
    known: dict[str, str] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=ast.JoinedStr() | ast.IfExp() | ast.BinOp() as value):
                known.setdefault(name, _sentence(value, known))
    return known


def _sentence(node: ast.expr, known: dict[str, str]) -> str:
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(_sentence(value, {}) for value in node.values)
        case ast.FormattedValue():
            return _sentence(node.value, known)
        case ast.BinOp(op=ast.Add()):
            return _sentence(node.left, known) + _sentence(node.right, known)
        case ast.IfExp():
            return f"<{_name(node.test)}? {_sentence(node.body, known)} | {_sentence(node.orelse, known)}>"
        case ast.Call(func=ast.Attribute(attr="rstrip"), args=[]):
            return _sentence(node.func.value, known)  # type: ignore[attr-defined]
        case ast.Name() if node.id in known:
            return known[node.id]
        case _:
            return f"<{_name(node)}>"


def _name(node: ast.expr) -> str:
    """A short name for what an expression says: its last word."""
    match node:
        case ast.Call(args=[first, *_]):
            return _name(first)
        case ast.Call():
            return _name(node.func.value if isinstance(node.func, ast.Attribute) else node.func)
        case ast.BoolOp():
            return " or ".join(_name(value) for value in node.values)
        case ast.Attribute():
            return node.attr
        case ast.Name():
            return node.id.lstrip("_").lower()
        case ast.GeneratorExp() | ast.ListComp():
            return _name(node.elt)
        case ast.JoinedStr():
            return _sentence(node, {}).strip("<>")
        case _:
            return ast.unparse(node)


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(text(), encoding="utf-8")
