"""The shipped experiments on training: what they plan, and that each of their variants takes a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from gptlab.runs.execute import execute
from gptlab.runs.plan import Plan, expand

RUNS = {"toy_ablations": 160, "masked_vs_unmasked": 16, "warmup": 96, "tying": 25, "real_text": 30}


@pytest.fixture
def plan(request: pytest.FixtureRequest) -> Plan:
    return expand([f"experiment={request.param}"])


@pytest.mark.slow
@pytest.mark.parametrize(("plan", "runs"), RUNS.items(), indirect=["plan"], ids=RUNS)
def test_the_sweep_that_is_documented(plan: Plan, runs: int) -> None:
    assert len(plan.runs) == runs and not plan.notes
    assert all(run.config.train.budget for run in plan.runs)
    seeds = {run.seed for run in plan.runs}
    assert len(plan.runs) == len({run.label for run in plan.runs}) * len(seeds)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["toy_ablations", "masked_vs_unmasked", "warmup", "tying"])
def test_each_variant_takes_a_step(name: str, tmp_path: Path) -> None:
    small = ["seed=1", "train.budget=2", "train.batch_size=2", f"output_dir={tmp_path}"]
    fixed = ["train.learning_rate=1e-3", "train.warmup=0"] if name == "warmup" else []
    fixed += ["train.warmup=0"] if name == "tying" else []
    for run in expand([f"experiment={name}", *small, *fixed]).runs:
        result = execute(run.config, tmp_path / run.folder)
        assert result["state"] in ("finished", "diverged"), result["error"]
        assert result["metrics"]["steps"] == 2
