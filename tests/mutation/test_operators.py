"""The tool that plants faults: what it changes, what it leaves alone, and what it counts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.mutation import page
from tests.mutation.operators import mutants


def changes(source: str) -> set[tuple[str, str]]:
    return {(mutant.before, mutant.after) for mutant in mutants(source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {("a < b", "(a <= b)"), ("a < b", "(a >= b)")}),
        ("x = a is not None", {("a is not None", "(a is None)")}),
        ("x = a + 2", {("a + 2", "(a - 2)"), ("2", "3")}),
        ("x = -a", {("-a", "a")}),
        ("x = a and b", {("a and b", "(a or b)")}),
        ("x = 0.5 if a else b", {("0.5", "1.0"), ("0.5 if a else b", "(0.5 if not a else b)")}),
        ("x = True", {("True", "False")}),
        ("x = f(a, b, c=d)", {("f(a, b, c=d)", "f(b, a, c=d)"), ("f(a, b, c=d)", "f(a, b)")}),
        ("x = min(a, b)", {("min(a, b)", "max(a, b)")}),
        ("x = a.detach()", {("a.detach()", "a")}),
        ("x = get('mean', y)", {("get('mean', y)", "get(y, 'mean')"), ("'mean'", "'mean_'")}),
        ("f(a)", {("f(a)", "pass")}),
        ("x += y", {("x += y", "pass")}),
        ("x.y = z", {("x.y = z", "pass")}),
        ("if a: pass", {("a", "(not a)")}),
        ("def f(x=1): return x", {("1", "2"), ("x", "None")}),
        # what is said, declared or raised is left alone
        ('"""A docstring."""\nimport os\nx: Literal[3]', set()),
        ('raise ValueError(f"{x + 1} is too large")', set()),
        ('warnings.warn("two", stacklevel=2)', set()),
        ('x = f"{a + 1}"', set()),
        ("x = 'Some words, said'", set()),
        ("assert a < b", set()),
    ],
)  # fmt: skip
def test_what_is_changed(source: str, expected: set[tuple[str, str]]) -> None:
    assert changes(source) == expected


def test_a_mutant_is_the_file_with_one_change() -> None:
    source = "def f(x):\n    'Text: ä.'\n    y = 'ä', x + 1  # why\n    return y\n"
    found = {mutant.after: mutant for mutant in mutants(source)}
    assert found["(x - 1)"].source == source.replace("x + 1", "(x - 1)")
    assert (found["(x - 1)"].function, found["(x - 1)"].line, found["(x - 1)"].at_import) == ("f", 3, False)
    assert mutants("x = 1")[0].at_import


def test_the_interval_is_wilsons() -> None:
    """Against statsmodels."""
    from statsmodels.stats.proportion import proportion_confint

    for caught, of in ((0, 10), (9, 10), (10, 10), (280, 300)):
        assert page.wilson(caught, of) == pytest.approx(proportion_confint(caught, of, method="wilson"), abs=1e-6)
    widths = [high - low for low, high in (page.wilson(9 * n, 10 * n) for n in (1, 10, 100))]
    assert all(wide > narrow for wide, narrow in pairwise(widths))
