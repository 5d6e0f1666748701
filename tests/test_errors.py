"""The mechanism of errors: a code, the facts, and a sentence that is made from them."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from gptlab.declare.composer import Composer
from gptlab.errors import ConfigError, unknown, wrong_value
from gptlab.store.locks import BusyError
from tests.support import messages

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
