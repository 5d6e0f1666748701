from __future__ import annotations

import math

import pytest

from gptlab.metrics import METRICS, metric
from gptlab.show import formats
from gptlab.texts import lines, printable
from tests.support.refusals import refused


@pytest.mark.parametrize("name", ["loss", "parameters", "parameters/attention", "parameters/shortcut"])
def test_a_metric_is_found_by_the_name_before_the_slash(name: str) -> None:
    assert metric(name).name == name.split("/")[0]


def test_an_unknown_metric_names_the_closest_one() -> None:
    with refused("unknown-name", key="metric", value="lss", suggestion="loss"):
        metric("lss")


def test_what_is_counted_is_never_tested_for_significance() -> None:
    exact = {name for name, declared in METRICS.items() if declared.kind == "exact"}
    assert {"parameters", "mib", "flops_forward_per_token"} <= exact
    assert exact.isdisjoint({"loss", "grad_norm", "grad_mean_abs", "seconds", "margin"})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\u202eevil", "\\u202eevil"),  # right-to-left override
        ("\ud800", "\\ud800"),
        ("a\\n", "a\\\\n"),
        ("日本 é ×", "日本 é ×"),
    ],
)
def test_nothing_that_steers_a_terminal_gets_through(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1.42, 17.174, None], ["1.42", "17.17", ""]),
        ([0.0731, 4.42e-7, 0.8], ["0.0731", "4.42e-07", "0.8000"]),
        ([3.47e-4, 1.45e-3], ["3.47e-04", "1.45e-03"]),
        ([0.0, 0.5], ["0.000", "0.500"]),
        ([0.0, 0.0], ["0", "0"]),
        ([math.nan, 1.0], ["nan", "1.00"]),
        ([], []),
    ],
)
def test_a_column_has_one_format_with_three_digits_or_more(values: list[float | None], shown: list[str]) -> None:
    assert formats.column(values) == shown


@pytest.mark.parametrize(
    ("value", "base", "shown"),
    [
        (1.0, 1.0, "="),
        (1.0000001, 1.0, "x1.00"),
        (0.37, 1.0, "x0.37"),
        (0.0043, 1.0, "x0.0043"),
        (5.4e-7, 1.0, "x5e-07"),
        (1234.5, 1.0, "x1,234"),
        (0.0, 1.0, "x0"),
        (1.0, 0.0, ""),
        (0.0, 0.0, ""),
        (None, 1.0, ""),
        (1.0, None, ""),
        (math.nan, 1.0, "xnan"),
        (math.inf, 1.0, "xinf"),
    ],
)
def test_ratios(value: float | None, base: float | None, shown: str) -> None:
    assert formats.ratio(value, base) == shown


@pytest.mark.parametrize(
    ("value", "base", "shown"),
    [(134_679_552, 163_009_536, "-17.38%"), (163_008_000, 163_009_536, "-0.0009%"), (7, 7, "="), (7, 0, "")],
)
def test_a_small_change_is_never_shown_as_none(value: int, base: int, shown: str) -> None:
    assert formats.percent_change(value, base) == shown


def test_a_difference_too_small_for_its_places_is_not_shown_as_zero() -> None:
    assert formats.difference(10.98001, 10.98, 4) == "+0.000010"
    assert formats.difference(10.98, 10.98, 4) == "="


def test_labels_break_after_their_plus_signs() -> None:
    assert lines("post_ln+no_shortcut+relu", 16) == ["post_ln+", "no_shortcut+relu"]
    assert lines("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]
