"""The mechanism of errors: a code, the facts, and a sentence that is made from them."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gptlab.declare.composer import Composer
from gptlab.errors import ConfigError, unknown, wrong_value
from gptlab.store.locks import BusyError
from tests.support import messages

TESTS = Path(__file__).parent
SAID_IN_SEVERAL_WAYS = {
    "no-equals-sign",
    "no-such-command",
    "unknown-name",
    "wrong-type",
}  # one kind each


def test_a_name_that_does_not_exist_carries_what_would_do() -> None:
    error = unknown("model.norm", "rmsnrm", ["layernorm", "rmsnorm"])
    assert error.code == "unknown-name"
    assert (error.key, error.facts["value"], error.facts["suggestion"]) == ("model.norm", "rmsnrm", "rmsnorm")
    assert error.facts["allowed"] == ["layernorm", "rmsnorm"]
    assert all(word in str(error) for word in ("model.norm", "'rmsnrm'", "'rmsnorm'", "layernorm"))


def test_a_wrong_value_carries_its_key_and_its_value() -> None:
    error = wrong_value("model.n_layers", -1, "must be 0 or more.", code="out-of-range", low=0)
    assert (error.key, error.facts["value"], error.facts["low"]) == ("model.n_layers", -1, 0)
    assert str(error).startswith("model.n_layers=-1: ")


@pytest.mark.parametrize("kind", [ConfigError, BusyError])
@pytest.mark.parametrize("copied", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_survives_the_way_between_processes(kind, copied) -> None:  # type: ignore[no-untyped-def]
    error = kind("no", code="some-code", key="seed", value=3)
    again = copied(error)
    assert (type(again), str(again), again.code, again.facts) == (kind, "no", "some-code", {"key": "seed", "value": 3})


def test_who_knows_the_place_says_it_and_keeps_code_and_facts() -> None:
    error = wrong_value("seed", "x", "must be a whole number.", code="wrong-type")
    placed = error.reworded(f"conf/mine.yaml, line 3: {error}", file="conf/mine.yaml", line=3)
    assert type(placed) is ConfigError and placed.code == "wrong-type"
    assert (placed.key, placed.facts["file"], placed.facts["line"]) == ("seed", "conf/mine.yaml", 3)
    assert "line" not in error.facts


@pytest.mark.parametrize(
    ("override", "code", "key", "suggestion"),
    [
        ("ablation=rmsnrm", "unknown-name", "ablation=rmsnrm", "rmsnorm"),
        ("model.norm=rmsnrm", "unknown-name", "model.norm", "rmsnorm"),
        ("model.n_layers=two", "wrong-type", "model.n_layers", None),
        ("model.n_layers=-1", "out-of-range", "model.n_layers", None),
    ],
)
def test_a_mistake_on_the_command_line_has_its_code(override: str, code: str, key: str, suggestion: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Composer().job([override])
    assert (caught.value.code, caught.value.key, caught.value.facts.get("suggestion")) == (code, key, suggestion)


def test_every_error_has_a_code() -> None:
    assert [made.place for made in messages.all_made() if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", made.code)] == []


def test_no_two_kinds_of_error_share_a_code() -> None:
    kinds: dict[str, set[tuple[str, str]]] = {}
    for made in messages.all_made():
        kinds.setdefault(made.code, set()).add((made.kind, re.sub("<.*?>", "<>", made.sentence)))
    several = {code for code, said in kinds.items() if len(said) > 1}
    assert several == SAID_IN_SEVERAL_WAYS
    assert [code for code in several if len({kind for kind, _ in kinds[code]}) > 1] == []


def test_the_golden_file_has_every_message_as_it_is() -> None:
    """After a message was changed on purpose: `make messages`."""
    assert messages.GOLDEN.read_text(encoding="utf-8") == messages.text()


def test_no_test_reads_the_sentence_of_an_error() -> None:
    """Codes and facts are tested (`tests.support.refusals`): no test stands in the way of better words.

    What a message quotes as it was typed, a line or a path, is no sentence: a test reads it as f"{error}".
    """
    found = [
        where for path in sorted(TESTS.rglob("test_*.py")) for where in sentences_read(path.read_text("utf-8"), path)
    ]
    assert found == []


def test_a_sentence_that_is_read_is_found() -> None:
    assert list(sentences_read("with pytest.raises(ConfigError, match='must be'): f()", Path("a.py"))) == ["a.py:1"]
    read = "def test():\n    with pytest.raises(gptlab.GptlabError) as caught: f()\n    assert 'x' in str(caught.value)"
    assert list(sentences_read(read, Path("a.py"))) == ["a.py:3"]
    others = "with pytest.raises(OSError, match='file') as caught: f()\nassert 'x' in str(caught.value)"
    assert list(sentences_read(others, Path("a.py"))) == []


def sentences_read(source: str, path: Path) -> Iterator[str]:
    """The lines that expect one of gptlab's errors by its sentence: `match=`, or the text of what was caught."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)] or [tree]
    for scope in functions:
        caught = set()
        for item in (item for node in ast.walk(scope) if isinstance(node, ast.With) for item in node.items):
            call = item.context_expr
            if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.raises" and call.args):
                continue
            if ast.unparse(call.args[0]).rpartition(".")[2] not in messages.CLASSES:
                continue
            if any(keyword.arg == "match" for keyword in call.keywords):
                yield f"{path.name}:{call.lineno}"
            if item.optional_vars is not None:
                caught.add(f"str({ast.unparse(item.optional_vars)}.value)")
        for node in ast.walk(scope):
            if caught and isinstance(node, ast.Call) and ast.unparse(node) in caught:
                yield f"{path.name}:{node.lineno}"
