"""A sweep function gives what a plain Python list would, or is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptlab.declare.composer import Composer
from gptlab.declare.overrides import normalised
from tests.support.refusals import refused

COMPOSER = Composer()
numbers = st.integers(-50, 50)


def values(text: str, key: str = "seed") -> list[str]:
    (override,) = COMPOSER.parse([f"{key}={text}"])
    return COMPOSER.sweep_values(override)


@settings(deadline=None)
@given(start=numbers, stop=numbers, step=numbers.filter(bool), reverse=st.booleans())
def test_range_and_sort_are_python_s(start: int, stop: int, step: int, reverse: bool) -> None:
    expected = list(range(start, stop, step))
    assert values(f"range({start},{stop},{step})") == [str(n) for n in expected]
    word = str(reverse).lower()
    ordered = [str(n) for n in sorted(expected, reverse=reverse)]
    assert values(f"sort(range({start},{stop},{step}),reverse={word})") == ordered


@settings(deadline=None)
@given(start=numbers, count=st.integers(0, 40), step=st.integers(1, 30), places=st.integers(1, 7))
def test_decimals_stay_decimals(start: int, count: int, step: int, places: int) -> None:
    unit = Decimal(1).scaleb(-places)
    first, by = start * unit, step * unit
    found = values(f"range({first:f},{first + count * by:f},{by:f})", "train.learning_rate")
    assert [float(text) for text in found] == [float(f"{first + n * by:f}") for n in range(count)]


def test_decimals_by_example() -> None:
    assert values("range(1e-4,5e-4,2e-4)", "train.learning_rate") == ["0.0001", "0.0003"]
    assert values("range(0,1,0.25)", "model.drop_rate") == ["0.0", "0.25", "0.5", "0.75"]
    assert values("range(3)") == values("choice(range(3))") == ["0", "1", "2"]
    assert values("sort(3,1,2)") == ["1", "2", "3"]
    assert values("sort(relu,gelu_exact)", "model.activation") == ["gelu_exact", "relu"]


def test_what_is_quoted_stays_one_value() -> None:
    (kept,) = values('choice("a,b")', "data.options.x")
    (override,) = COMPOSER.parse(normalised([f"data.options.x={kept}"]))
    assert override.value() == "a,b"


@pytest.mark.parametrize(
    ("text", "code", "facts"),
    [
        ("shuffle(1,2,3)", "override-grammar", {"override": "seed=shuffle(1,2,3)", "cause": "no-such-function"}),
        ("int(3.5)", "override-grammar", {"override": "seed=int(3.5)", "cause": "no-such-function"}),
        (
            "tag(a,choice(1,2))",
            "override-grammar",
            {"override": "seed=tag(a,choice(1,2))", "cause": "no-such-function"},
        ),
        ("interval(0,1)", "override-grammar", {"override": "seed=interval(0,1)", "cause": "no-such-function"}),
        ("range(1,5,0)", "override-grammar", {"override": "seed=range(1,5,0)", "cause": "arguments"}),
        ("range(1,2,3,4)", "override-grammar", {"override": "seed=range(1,2,3,4)", "cause": "arguments"}),
        ("range(inf)", "override-grammar", {"override": "seed=range(inf)", "cause": "arguments"}),
        ("range(true)", "override-grammar", {"override": "seed=range(true)", "cause": "arguments"}),
        ("range(0,1e9)", "override-grammar", {"override": "seed=range(0,1e9)", "cause": "arguments"}),
        ("sort(1,a)", "override-grammar", {"override": "seed=sort(1,a)", "cause": "arguments"}),
        ("sort([2,1])", "override-grammar", {"override": "seed=sort([2,1])", "cause": "arguments"}),
        ("choice()", "override-grammar", {"override": "seed=choice()", "cause": "arguments"}),
        ("choice(1,range(3))", "override-grammar", {"override": "seed=choice(1,range(3))", "cause": "arguments"}),
    ],
)
def test_the_rest_is_refused(text: str, code: str, facts: dict[str, Any]) -> None:
    with refused(code, **facts):
        values(text)
