"""The shipped experiments on training: what they plan, and that each of their variants takes a step."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from gptlab.planning.plan import Plan, expand
from gptlab.running.execute import execute

NOTEBOOK = Path(__file__).parents[2] / "experiments"
RUNS = {
    "toy_ablations": 160,
    "masked_vs_unmasked": 16,
    "warmup": 96,
    "tying": 25,
    "real_text": 30,
    "gated_or_larger": 30,
    "tuned_norms": 15,
}


COMMITTED = {name: runs for name, runs in RUNS.items() if name != "gated_or_larger"}  # not trained yet


@pytest.fixture
def plan(request: pytest.FixtureRequest, bf16_here: None) -> Plan:
    return expand([f"experiment={request.param}"])


@pytest.mark.slow
@pytest.mark.parametrize(("plan", "runs"), RUNS.items(), indirect=["plan"], ids=RUNS)
def test_the_sweep_that_is_documented(plan: Plan, runs: int) -> None:
    assert len(plan.runs) == runs
    assert len(plan.notes) == (plan.study == "tying")  # which is about what its note warns of
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ablations"),
    [
        ("toy_ablations", "none,no_shortcut,post_ln"),
        ("masked_vs_unmasked", "none,no_mask"),
        ("warmup", "none,post_ln"),
    ],
)
def test_what_is_committed_comes_out_again(name: str, ablations: str, tmp_path: Path) -> None:
    """One seed of the quick studies. Processors differ in the last bits, and training makes them grow."""
    with (NOTEBOOK / name / "runs.csv").open(newline="") as file:
        committed = {(row["label"], int(row["seed"])): row for row in csv.DictReader(file)}
    fixed = ["train.learning_rate=1e-2", "train.warmup=0"] if name == "warmup" else []
    for run in expand([f"experiment={name}", f"ablation={ablations}", "seed=2", *fixed, f"output_dir={tmp_path}"]).runs:
        result = execute(run.config, tmp_path / run.folder)
        label = f"{run.label}+learning_rate=0.01+warmup=0" if name == "warmup" else run.label
        expected = committed[label, run.seed]
        assert result["outcome"] == expected["outcome"]
        assert result["metrics"]["initial_loss"] == pytest.approx(float(expected["initial_loss"]), rel=1e-5)
        assert result["metrics"]["final_loss"] == pytest.approx(float(expected["final_loss"]), abs=0.02)


def test_the_whole_of_each_study_is_committed() -> None:
    for name, runs in COMMITTED.items():
        with (NOTEBOOK / name / "runs.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == runs, name
        assert all(row["outcome"] for row in rows), name
