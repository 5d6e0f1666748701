"""The race runs to its end whatever a contestant does, and its table says what was found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.benchmarks import race, steps

TINY = (2, 8, 11, 16, 2, 2)


def test_a_contestant_that_fails_is_named_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "SECONDS", 0.0)
    runs: list[str] = []

    def broken() -> Callable[[], None]:
        raise ImportError("not installed\nsecond line")

    def breaks() -> None:
        raise RuntimeError

    best, errors = race.race({"a": broken, "b": lambda: breaks, "c": lambda: lambda: runs.append("c")})
    assert errors == {"a": "ImportError: not installed", "b": "RuntimeError: "}
    assert list(best) == ["c"] and len(runs) == 1 + race.ROUNDS[0]


def test_the_table_has_a_line_for_each_cell_and_each_error() -> None:
    cell = {
        "shape": "small", "precision": "fp32", "threads": 1, "microseconds": {"gptlab": 1000.0, "plain": 1500.0},
        "errors": {"transformers": "ImportError: none"}, "ratio": 1.5, "share_of_peak": 0.4,
    }  # fmt: skip
    dead = {"shape": "long", "precision": "bf16", "threads": 2, "microseconds": {}, "errors": {"cell": "killed"}}
    lines = race.table([cell, dead])
    assert len(lines) == 6
    assert lines[1].split() == ["small", "fp32", "1", "1,000", "-", "1,500", "-", "1.50x", "40%"]
    assert "none" in lines[2] and "killed" in lines[4] and "1.50x" in lines[5]


def test_contestants_learn_and_the_products_are_counted() -> None:
    ids = steps.tokens(TINY)
    with torch.random.fork_rng():
        step = steps.plain(TINY, "fp32", ids)
    losses = [step() for _ in range(20)]
    assert losses[-1] < losses[0]
    with torch.random.fork_rng():
        model = steps.PlainGPT(TINY)
    with FlopCounterMode(display=False) as counter:
        model(ids[:, :-1], ids[:, 1:]).backward()
    counted = counter.get_total_flops()
    assert counted == pytest.approx(steps.flops(TINY), rel=0.1)  # a flash kernel computes the scores again, backward


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_cell_has_the_yardstick_in_fp32_and_it_is_no_peer(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(steps.SHAPES, "tiny", TINY)
    monkeypatch.setattr(race, "SECONDS", 0.0)
    monkeypatch.setattr(race, "square_rate", lambda precision: 1e12)
    config = steps.config(TINY)  # any processor has this precision
    monkeypatch.setattr(steps, "config", lambda size, precision: config)
    made: list[str] = []
    theirs = steps.transformers
    monkeypatch.setattr(steps, "transformers", lambda size, p, ids: (made.append(p), theirs(size, p, ids))[1])
    cell = race.run_cell("tiny", precision, torch.get_num_threads(), eager=True)
    assert made == list(dict.fromkeys([precision, "fp32"])) and not cell["errors"]
    assert set(cell["microseconds"]) == {"gptlab", "transformers", "plain"}
    assert cell["fp32_transformers"] > 0
    assert (cell["fp32_transformers"] == cell["microseconds"]["transformers"]) == (precision == "fp32")
