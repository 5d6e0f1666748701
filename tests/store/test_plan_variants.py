"""Which runs of a plan are of one variant: all of their seeds, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from gptlab.store.plan_history import variants_of

ONE: dict[str, Any] = {
    "id": "a",
    "label": "relu",
    "delta": {"model.activation": ["gelu_tanh", "relu"]},
    "overrides": ["ablation=relu", "seed=1"],
}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"overrides": ["ablation=relu", "seed=2"]}, True),
        ({"overrides": ["seed=2", "ablation=relu"]}, True),
        ({"overrides": ["ablation=relu", "seed=1", "train.seeds=1"]}, False),
        ({"label": "other"}, False),
        ({"delta": {}}, False),
        ({"folder": "elsewhere", "seed": 5}, True),
    ],
)
def test_an_older_plan_tells_variants_by_what_was_asked(change: dict[str, Any], same: bool) -> None:
    found = variants_of({"runs": [ONE, {**ONE, **change, "id": "b"}]})
    assert set(found) == {"a", "b"}
    assert (found["a"] == found["b"]) == same


def test_a_plan_that_says_the_variant_is_believed() -> None:
    runs = [
        {**ONE, "variant": "v"},
        {**ONE, "id": "b", "label": "x", "variant": "v"},
        {**ONE, "id": "c", "variant": "w"},
    ]
    assert variants_of({"runs": runs}) == {"a": "v", "b": "v", "c": "w"}


def test_what_is_no_run_is_passed_over() -> None:
    assert list(variants_of({"runs": [ONE, {"id": 3}, "odd", {}]})) == ["a"]
    assert variants_of({}) == variants_of({"runs": None}) == {}
