from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptlab.errors import ConfigError
from gptlab.store.where import parse
from tests.support.refusals import refused

RUN: dict[str, Any] = {
    "loss": 4.5, "seed": 2, "label": "post_ln+relu", "state": "finished", "model.norm_placement": "post",
    "model.tie_weights": True, "model.drop_rate": 0.0, "parameters/attention": 10, "plugins": ["a", "b"],
    "when": "2026-01-02 03:04:05", "stale": "", "error": 'it said "no"',
}  # fmt: skip


@pytest.mark.parametrize(
    ("condition", "fits"),
    [
        ("model.norm_placement == post and loss < 5", True),
        ("model.norm_placement = 'post' and loss<=4.5", True),
        ("loss > 4.5", False),
        ("loss >= 4.5 and loss != 4", True),
        ("loss == 4.50e0", True),
        ("not loss < 5 or seed == 2", True),
        ("not (loss < 5 or seed == 2)", False),
        ("seed == 1 or seed == 2 and loss > 100", False),  # `and` binds tighter
        ("(seed == 1 or seed == 2) and loss < 100", True),
        ("seed in (1, 2, 3)", True),
        ("state in (failed, crashed)", False),
        ("label ~ relu", True),
        ("label ~ 'n+r'", True),
        ("label == post_ln+relu", True),
        ("model.tie_weights == true", True),
        ("model.tie_weights", True),
        ("model.tie_weights == 1", False),
        ("model.drop_rate == 0", True),
        ("model.drop_rate", True),
        ("parameters/attention == 10", True),
        ("plugins == [a,b]", True),
        ("when > '2026-01-01'", True),
        ("when < 2026-01-01", False),
        ("stale", False),
        ("not stale", True),
        ('error ~ "\\"no\\""', True),
        ("missing == null", True),
        ("missing != null", False),
        ("missing != 3", False),
        ("missing < 3", False),
        ("missing", False),
        ("loss != null", True),
        ("label < 5", False),
        ("seed == '2'", True),
        ("seed == -2", False),
    ],
)
def test_conditions(condition: str, fits: bool) -> None:
    test, _ = parse(condition)
    assert test(RUN.get) is fits


def test_the_keys_that_a_condition_asks_for() -> None:
    assert parse("a == 1 and (not b.c < 2 or d in (e, f))")[1] == ["a", "b.c", "d"]


@pytest.mark.parametrize(
    ("condition", "cause", "place"),
    [
        ("", "end", 0),
        ("loss <", "end", 6),
        ("loss < 5 seed == 2", "and-or", 9),
        ("(loss < 5", ")", 9),
        ("loss in 1, 2", "(", 8),
        ("loss & 5", "no-part", 4),
        ("5 < loss", "no-key", 0),
        ("and", "no-key", 0),
        ("loss == 'open", "no-part", 7),
        ("(" * 60 + "loss" + ")" * 60, "levels", 0),
        ("not " * 60 + "loss", "levels", 0),
    ],
)
def test_mistakes_show_their_place(condition: str, cause: str, place: int) -> None:
    with refused("where-grammar", cause=cause, place=place) as caught:
        parse(condition)
    assert f"{condition[:place]}>>>{condition[place:]}" in f"{caught.value}"


@given(st.text(st.sampled_from("ab .()'\"<>=!~,0159-+eandornti\\"), max_size=40))
def test_any_text_is_a_condition_or_a_short_mistake(text: str) -> None:
    try:
        test, _ = parse(text)
    except ConfigError:
        return
    assert test(RUN.get) in (True, False)


def test_nothing_is_evaluated() -> None:
    with pytest.raises(ConfigError):
        parse("__import__('os').system('true')")
    test, keys = parse("__class__.__mro__ == 1")
    assert keys == ["__class__.__mro__"] and not test(RUN.get)


def test_a_level_is_a_depth_and_not_a_number_of_comparisons() -> None:
    test, _ = parse(" and ".join(["(loss < 5)"] * 300))
    assert test(RUN.get)
