"""Small faults of the silent kind, one at a time: what a slip of the hand would make of one place of a source file."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

Change: TypeAlias = tuple[ast.AST, ast.AST | None, str]  # the node, what stands in its place (None: nothing), operator

# The nearest neighbour (a boundary) first, then the opposite.
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip
TWINS = {"min": "max", "max": "min", "any": "all", "all": "any"}
SYMMETRIC = {"min", "max", "isinstance", "isclose", "allclose", "equal"}  # swapped: the same, or caught at once
WORD = re.compile(r"[a-z][a-z0-9_]*")
# What is said to people is left out: a test checks the code and the facts of an error, not its sentence.
SPOKEN = re.compile(r"(Error|Warning|warn|warning|refuse|closest|message|print|__repr__|log)$")


@dataclass(frozen=True)
class Mutant:
    """One fault: where it is, what stood there and stands there now, and the whole source with it."""

    line: int  # of the statement, and its last
    last: int
    function: str  # dotted, "" at the level of the module
    operator: str
    before: str
    after: str
    source: str

    @property
    def at_import(self) -> bool:
        """Whether the place runs when the module is imported, and so before any test."""
        return not self.function


def mutants(source: str) -> list[Mutant]:
    """Every mutant of one file, in the order of the source."""
    tree = ast.parse(source)
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    data = b"".join(lines)
    found = []
    for statement, function in _statements(tree.body, ""):
        for node, other, operator in _changes(statement):
            start, end = (_offset(lines, *place) for place in _places(node))
            text = _text(other)
            changed = (data[:start] + text.encode() + data[end:]).decode()
            before = " ".join(data[start:end].decode().split())
            if _parses(changed):
                last = statement.end_lineno or statement.lineno
                found.append(Mutant(statement.lineno, last, function, operator, before, text, changed))
    return found


def _statements(body: list[ast.stmt], function: str) -> Iterator[tuple[ast.stmt, str]]:
    """Each statement that computes, with its function; nested bodies are walked, not repeated."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{function}.{statement.name}".lstrip(".")
            if not isinstance(statement, ast.ClassDef):
                for default in (*statement.args.defaults, *filter(None, statement.args.kw_defaults)):
                    yield ast.copy_location(ast.Expr(default), default), function
            if statement.name != "__repr__":
                yield from _statements(statement.body, name if not isinstance(statement, ast.ClassDef) else function)
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom | ast.Raise | ast.Assert | ast.Global | ast.Nonlocal):
            continue
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            continue
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue  # a docstring
        yield statement, function
        for inner in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, inner, []), function)
        for handler in getattr(statement, "handlers", []):
            yield from _statements(handler.body, function)


def _changes(statement: ast.stmt) -> Iterator[Change]:
    yield from _of_statement(statement)
    for node in _expressions(statement):
        yield from _of_expression(node)


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions of one statement: not those of its body, of annotations, or of what is said to people."""
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "body", "orelse", "finalbody", "handlers"} and isinstance(node, ast.stmt):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.stmt):
                continue
            if isinstance(child, ast.Call) and SPOKEN.search(ast.unparse(child.func)):
                continue
            if isinstance(child, ast.expr):
                yield child
            yield from _expressions(child)


def _of_statement(node: ast.stmt) -> Iterator[Change]:
    match node:
        case ast.Expr(value=ast.Call() as call) if not SPOKEN.search(ast.unparse(call.func)):
            yield node, None, "statement"
        case ast.AugAssign() | ast.Break() | ast.Continue() | ast.Delete():
            yield node, None, "statement"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, None, "statement"
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            if any(isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(value)):
                yield node, None, "statement"  # x = f(x)
        case ast.Return(value=value) if value is not None and not _is(value, None):
            yield value, ast.Constant(None), "return"
        case ast.If(test=test) | ast.While(test=test) if not isinstance(test, ast.Compare | ast.UnaryOp):
            yield test, ast.UnaryOp(ast.Not(), test), "condition"


def _of_expression(node: ast.expr) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=[operator]):
            for other in COMPARISONS[type(operator)]:
                yield node, _with(node, ops=[other()]), "comparison"
        case ast.BinOp(op=operator) if type(operator) in ARITHMETIC and not _is_text(node):
            yield node, _with(node, op=ARITHMETIC[type(operator)]()), "arithmetic"
        case ast.BoolOp(op=operator):
            yield node, _with(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And()), "boolean"
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield node, operand, "sign"
        case ast.IfExp(test=test):
            yield node, _with(node, test=ast.UnaryOp(ast.Not(), test)), "condition"
        case ast.Constant(value=bool() as value):
            yield node, ast.Constant(not value), "constant"
        case ast.Constant(value=int() as value):
            yield node, ast.Constant(value + 1), "number"
        case ast.Constant(value=float() as value):
            yield node, ast.Constant(value * 2 if value else 1.0), "number"
        case ast.Constant(value=str() as value) if WORD.fullmatch(value):
            yield node, ast.Constant(value + "_"), "word"
        case ast.Call():
            yield from _of_call(node)


def _of_call(node: ast.Call) -> Iterator[Change]:
    for index, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            yield node, _with(node, keywords=node.keywords[:index] + node.keywords[index + 1 :]), "keyword"
    plain = _name(node.func) not in SYMMETRIC and not any(isinstance(argument, ast.Starred) for argument in node.args)
    if plain and len(node.args) >= 2 and ast.dump(node.args[0]) != ast.dump(node.args[1]):
        yield node, _with(node, args=[node.args[1], node.args[0], *node.args[2:]]), "swap"
    match node.func:
        case ast.Name(id=name) if name in TWINS:
            yield node, _with(node, func=ast.Name(TWINS[name])), "twin"
        case ast.Name(id="abs" | "sorted" | "reversed" | "round" | "float" | "int" | "set") if plain and node.args:
            yield node, node.args[0], "call"
        case ast.Attribute(value=value) if not node.args and not node.keywords:
            yield node, value, "call"  # x.detach(), x.float(), x.copy()


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def _name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def _is(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _is_text(node: ast.AST) -> bool:
    return any(
        isinstance(inner, ast.JoinedStr) or (isinstance(inner, ast.Constant) and isinstance(inner.value, str))
        for inner in ast.walk(node)
    )


def _text(node: ast.AST | None) -> str:
    if node is None:
        return "pass"
    text = ast.unparse(node)
    return text if isinstance(node, ast.Constant | ast.Name | ast.Call) else f"({text})"


def _places(node: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _offset(lines: list[bytes], line: int, column: int) -> int:
    return sum(map(len, lines[: line - 1])) + column


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True
