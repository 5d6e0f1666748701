"""The functions of a sweep: `range`, `choice`, `sort` and `glob` give what a plain Python list would.

Hydra's own lose values when a range is sorted backwards, add up decimals in binary (0.0003 becomes
0.00030000000000000003, which is another run), take the quotes off a choice, and shuffle differently each time.
"""

from __future__ import annotations

import decimal
import inspect
from collections.abc import Callable
from typing import Any

from hydra._internal.grammar.functions import FunctionCall, Functions
from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, QuotedString
from hydra.errors import HydraException

MOST_VALUES = 100_000  # of one range


class SweepFunctions(Functions):
    """What an override may call, for Hydra's parser."""

    def eval(self, func: FunctionCall) -> Any:
        """The sweep that a call stands for. HydraException, with the reason, for one that makes none."""
        if func.name not in FUNCTIONS:
            raise HydraException(f"Unknown function '{func.name}'")
        function = FUNCTIONS[func.name]
        try:
            inspect.signature(function).bind(*func.args, **func.kwargs)
        except TypeError as error:
            raise HydraException(f"{func.name}: {error}") from error
        return function(*func.args, **func.kwargs)


def written(value: Any) -> str:
    """One value of a sweep as an override has it: text that was in quotes stays in quotes."""
    return str(Override._get_value_element_as_str(value))


def _range(start: Any, stop: Any = None, step: Any = 1) -> ChoiceSweep:
    """start, start + step, ... before stop; one argument is the stop, as in Python. Decimals are added as decimals."""
    numbers = (0, start, step) if stop is None else (start, stop, step)
    if not all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in numbers):
        raise HydraException("a range is between numbers")
    begin, end, by = (decimal.Decimal(str(number)) for number in numbers)
    if not (begin.is_finite() and end.is_finite() and by.is_finite()):
        raise HydraException("a range is between finite numbers")
    if by == 0:
        raise HydraException("the step of a range cannot be 0")
    count = max(0, int(((end - begin) / by).to_integral_value(rounding=decimal.ROUND_CEILING)))
    if count > MOST_VALUES:
        raise HydraException(f"this range has {count} values, and {MOST_VALUES} are the most")
    kind = int if all(isinstance(number, int) for number in numbers) else float
    return ChoiceSweep(list=[kind(begin + place * by) for place in range(count)])


def _choice(*values: Any) -> ChoiceSweep:
    """The values as they stand; choice(range(3)) is range(3)."""
    if not values:
        raise HydraException("choice needs values")
    if len(values) == 1 and isinstance(values[0], ChoiceSweep):
        return ChoiceSweep(list=values[0].list)
    if any(isinstance(value, (ChoiceSweep, Glob)) for value in values):
        raise HydraException("a sweep inside of a choice is no value; write its values out")
    return ChoiceSweep(list=list(values))


def _sort(*values: Any, reverse: bool = False) -> ChoiceSweep:
    """The values of a sweep, or the arguments, in order: numbers with numbers, names with names."""
    only = values[0] if len(values) == 1 else None
    found = list(only.list if isinstance(only, ChoiceSweep) else values)
    if any(isinstance(value, (ChoiceSweep, Glob, list, dict)) for value in found) or not isinstance(reverse, bool):
        raise HydraException("sort takes one sweep, or values: sort(range(1,6,2),reverse=true), sort(3,1,2)")
    try:
        return ChoiceSweep(list=sorted(found, key=_plain, reverse=reverse))
    except TypeError as error:
        raise HydraException("numbers and names have no order among them") from error


def _glob(include: Any, exclude: Any = ()) -> Glob:
    """The options of a group that match a pattern, or one of several."""

    def patterns(given: Any) -> list[str]:
        return [str(_plain(one)) for one in (given if isinstance(given, (list, tuple)) else [given])]

    return Glob(include=patterns(include), exclude=patterns(exclude))


def _plain(value: Any) -> Any:
    return value.text if isinstance(value, QuotedString) else value


FUNCTIONS: dict[str, Callable[..., Any]] = {"choice": _choice, "glob": _glob, "range": _range, "sort": _sort}
