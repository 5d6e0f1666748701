"""The lab notebook tells the truth: what is committed under experiments/ comes out again."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gptlab import analyses
from gptlab.cli import main
from gptlab.declare import sources
from gptlab.declare.composer import Composer
from gptlab.planning.plan import expand
from tests.support.refusals import refused

NOTEBOOK = Path(__file__).parents[2] / "experiments"
CONFIGS = {path.stem: yaml.safe_load(path.read_text()) for path in sources.CONF_DIR.glob("experiment/*.yaml")}
STUDIES = sorted(name for name, body in CONFIGS.items() if body and body.get("experiment", {}).get("analysis"))
SLOW = ("gradient_flow", "greedy_steps", "parameter_budget")
NEARLY_NOTHING = 1e-12  # a committed value below this is rounding, and only has to stay below
TOLERANCE = 2e-4  # relative, for what float32 computes; the tables have six digits, and builds of torch differ

WRITTEN = """
from gptlab.analyses import Findings, register_analysis

@register_analysis("mine")
def mine(variants, factor: int = 2):
    '''A question of my own.'''
    if factor < 0:
        raise ValueError("no negative factors")
    return Findings([("variants", factor * len(variants), "times the factor")], {"rows": [{"a": 1}]})
"""


def committed(study: str) -> dict[str, str]:
    with (NOTEBOOK / study / "summary.csv").open(newline="") as file:
        return {row["quantity"]: row["value"] for row in csv.DictReader(file)}


def again(study: str, *overrides: str) -> dict[str, Any]:
    plan = expand([f"experiment={study}", *overrides])
    return {name: value for name, value, _ in analyses.run([run.config for run in plan.runs]).summary}


def compare(found: dict[str, Any], expected: dict[str, str]) -> None:
    assert found.keys() == expected.keys()
    for name, value in found.items():
        if isinstance(value, int):
            assert str(value) == expected[name], name
        elif abs(float(expected[name])) < NEARLY_NOTHING:
            assert abs(value) < NEARLY_NOTHING, name
        else:
            assert value == pytest.approx(float(expected[name]), rel=TOLERANCE), name


@pytest.mark.parametrize("study", [s for s in STUDIES if s not in SLOW])
def test_quick_studies_come_out_again(study: str) -> None:
    compare(again(study), committed(study))


@pytest.mark.slow
@pytest.mark.parametrize("study", SLOW)
def test_slow_studies_come_out_again(study: str) -> None:
    compare(again(study), committed(study))


def test_gradient_flow_at_the_books_seed_comes_out_again() -> None:
    found, expected = again("gradient_flow", "experiment.options.seeds=5"), committed("gradient_flow")
    assert found["seeds"] == 5
    of_one_seed = [name for name in expected if name.startswith("lift_")]
    of_one_seed += ["error_factor", "jacobian_factor", "bypass_share"]
    assert len(of_one_seed) == 8
    compare({name: found[name] for name in of_one_seed}, {name: expected[name] for name in of_one_seed})


def test_greedy_steps_with_few_seeds() -> None:
    found = again("greedy_steps", "experiment.options.seeds=2", "ablation=none,tied_unscaled")
    assert found["same_choice"] == 20
    assert found["baseline/cycles"] == 0 < found["tied_unscaled/cycles"]


# --- the published statements, against the committed tables

PUBLISHED = {
    "gradient_flow": {
        "lift_0": (1099, 0.5), "lift_1": (1723, 0.5), "error_factor": (12.57, 0.005), "jacobian_factor": (87.4, 0.05),
        "bypass_share": (0.94, 0.005), "monotone": (0.48, 0.005), "last_largest_without": (0.994, 0.0005),
        "last_largest_with": (1, 0), "last_largest_width3_none": (0.95, 0.005),
        "last_largest_width3_own": (0.11, 0.005), "last_largest_width1_none": (1, 0),
        "last_largest_width1_own": (0.66, 0.005), "floor_lower_with": (0.022, 5e-4),
        "median_error_factor": (1.3, 0.05),
    },
    "layer_norm_conventions": {
        "first_n": (0.6746, 5e-5), "first_n_minus_1": (0.6159, 5e-5), "ratio_6": (1.0954, 1e-4),
        "ratio_768": (1.0007, 1e-4),
    },
    "activation_curves": {"minimum_x": (-0.7524, 1e-4), "gap": (0.000473, 1e-6), "gap_x": (2.7, 0.01)},
    "expansion_parity": {"parity": (1.9987, 5e-5), "parity_qkv_bias": (2.0007, 5.5e-5), "difference_at_2": (1536, 0)},
    "parameter_budget": {"12x768_untied": (163_009_536, 0), "48x1600_tied": (1_557_380_800, 0)},
    "greedy_steps": {"baseline/cycles": (0, 0), "tied_unscaled/period_1": (54.5, 3.5)},
    "position_equivariance": {"no_mask+no_positions/change": (0, 1e-12)},
}  # fmt: skip


@pytest.mark.parametrize("study", PUBLISHED)
def test_the_committed_tables_hold_what_was_published(study: str) -> None:
    found = committed(study)
    for name, (value, tolerance) in PUBLISHED[study].items():
        assert float(found[name]) == pytest.approx(value, rel=0, abs=tolerance), name


# --- the folders


@pytest.mark.parametrize("study", STUDIES)
def test_a_folder_says_what_it_is(study: str) -> None:
    folder = NOTEBOOK / study
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert f"gptlab experiment={study} " in text
    assert "**Question.**" in text and "**What it shows**" in text
    linked = set(re.findall(r"\]\(([^)]+)\)", text))
    assert linked == {path.name for path in folder.glob("*.svg")}, "every figure is shown"
    assert {path.stem for path in folder.glob("*.svg")} == {path.stem for path in folder.glob("*.png")}
    assert all(path.stat().st_size < 200_000 for path in folder.iterdir())
    assert f"({study}/README.md)" in (NOTEBOOK / "README.md").read_text(encoding="utf-8")


def test_there_are_seven() -> None:
    assert len(STUDIES) >= 7
    assert set(PUBLISHED) <= set(STUDIES)


# --- the mechanism


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scratch_registry: None) -> Iterator[Path]:
    (tmp_path / "my_questions.py").write_text(WRITTEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "my_questions", raising=False)
    yield tmp_path
    __import__("sys").modules.pop("my_questions", None)


OWN = ["model=tiny", "probes=counting", "plugins=[my_questions]", "experiment.name=q", "experiment.analysis=mine"]


def test_an_analysis_of_the_users(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*OWN, "experiment.options.factor=3", "ablation=none,relu"]) == 0
    (folder,) = Path("outputs/q").glob("analysis")
    assert (folder / "summary.csv").read_text() == "quantity,value,meaning\nvariants,6,times the factor\n"
    assert (folder / "rows.csv").read_text() == "a\n1\n"
    assert f"Analysis: {folder}" in capsys.readouterr().out.replace("\n", "")


def test_the_plan_says_what_is_computed_after_the_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "experiment=gradient_flow", "experiment.options.seeds=7"]) == 0
    assert "Then the analysis gradient_flow (seeds=7): " in capsys.readouterr().out
    assert main(["plan", "experiment=gradient_flow", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["analysis"] == {"name": "gradient_flow", "options": {"seeds": 500}}
    assert main(["plan", "model=tiny", "probes=counting"]) == 0
    assert "analysis" not in capsys.readouterr().out


def test_an_analysis_that_fails_costs_no_run(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*OWN, "experiment.options.factor=-1"]) == 1
    (folder,) = Path("outputs/q").glob("analysis")
    assert "no negative factors" in (folder / "error.txt").read_text()
    assert "analysis mine failed: ValueError: no negative factors" in capsys.readouterr().err
    assert len(list(folder.parent.glob("*/result.json"))) == 1


@pytest.mark.parametrize(
    ("overrides", "code", "facts"),
    [
        (
            ["experiment.analysis=gradient_flo"],
            "unknown-name",
            {"key": "experiment.analysis", "value": "gradient_flo", "suggestion": "gradient_flow"},
        ),
        (
            ["experiment=gradient_flow", "experiment.options.seds=1"],
            "unknown-name",
            {"key": "experiment.options (analysis=gradient_flow)", "value": "seds", "suggestion": "seeds"},
        ),
        (
            ["experiment=gradient_flow", "experiment.options.seeds=x"],
            "wrong-type",
            {"key": "experiment.options.seeds", "value": "x"},
        ),
        (["experiment.options.seeds=1"], "options-without-analysis", {"key": "experiment.options"}),
    ],
)
def test_mistakes_stop_a_study_before_it_starts(overrides: list[str], code: str, facts: dict[str, Any]) -> None:
    with refused(code, **facts):
        Composer().job(overrides)


def test_an_analysis_is_no_part_of_a_runs_identity() -> None:
    ids = {expand(["experiment=gradient_flow", f"experiment.options.seeds={n}"]).runs[0].id for n in (5, 6)}
    assert len(ids) == 1


def test_seeds_out_of_range_are_refused() -> None:
    for study, code in (("gradient_flow", "gradient-flow-seeds"), ("greedy_steps", "greedy-steps-options")):
        with refused(code):
            again(study, "experiment.options.seeds=0")


def test_gradient_flow_needs_the_network_and_no_particular_variant() -> None:
    found = again("gradient_flow", "experiment.options.seeds=2", "ablation=no_shortcut", "add_baseline=false")
    assert found["lift_0"] == pytest.approx(1098.95, rel=TOLERANCE)
    with refused("gradient-flow-architecture", key="experiment.analysis", value="gradient_flow", architecture="gpt"):
        again("gradient_flow", "model=tiny")


@pytest.mark.usefixtures("module")
def test_registering_needs_defaults_and_a_free_name() -> None:
    with refused("component-needs-unknown", kind="analysis", name="other", parameter="seeds", allowed=[]):
        analyses.register_analysis("other")(lambda variants, seeds: analyses.Findings())
    analyses.get("gradient_flow")
    with refused("component-registered-twice", name="gradient_flow", module="gptlab.book.analyses.gradient_flow"):
        analyses.register_analysis("gradient_flow")(lambda variants: analyses.Findings())
