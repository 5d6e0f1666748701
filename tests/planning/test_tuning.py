"""Tuned arms: what is planned at each stage, from trials with chosen losses; and what is refused before any run."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gptlab
from gptlab.cli import main
from gptlab.planning.plan import Plan, PlannedRun, expand
from gptlab.planning.tuning import at_work, following, reached
from gptlab.store.study_plan import parse_plan
from gptlab.tuned import Protocol
from tests.support.refusals import refused

TOY = ["model=toy_lesson", "data=sentences", "train=toy"]
TUNED = [*TOY, "tune=learning_rate"]
ARMS = ("ablation=none,relu,silu", "seed=1,2,3")
Loss = Callable[[str, float], float | None]  # of an arm at a rate; None: it diverges


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPTLAB_CONF_PATH", raising=False)
    return tmp_path


@functools.cache  # composing takes its time, and a plan does not change
def tuned(*words: str) -> Plan:
    return expand([*TUNED, *words])


def write(plan: Plan, loss: Loss) -> None:
    """The results of all trials of this stage."""
    assert plan.tuning
    for run in plan.tuning.trials:
        folder = plan.output_dir / plan.study / run.folder
        found = loss(run.arm, run.config.train.learning_rate)
        final = 99.0 if found is None else found + 1e-3 * plan.tuning.protocol.seeds.index(run.seed)
        state = "diverged" if found is None else "finished"
        result = {"schema": 1, "id": run.id, "label": run.label, "seed": run.seed, "state": state, "outcome": None}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "result.json").write_text(json.dumps({**result, "metrics": {"final_loss": final}}))


def bowl(**centers: float) -> Loss:
    return lambda arm, rate: 1 + (math.log2(rate / centers.get(arm, 5e-3))) ** 2


def decided(plan: Plan, loss: Loss) -> Plan:
    """The plan's last stage, with these losses."""
    for _ in range(9):
        write(plan, loss)
        later = following(plan)
        if later is None:
            return plan
        plan = later
    raise AssertionError("it does not end")


def rates(runs: tuple[PlannedRun, ...]) -> dict[str, set[float]]:
    found: dict[str, set[float]] = {}
    for run in runs:
        found.setdefault(run.arm or run.label, set()).add(run.config.train.learning_rate)
    return found


def test_trials_come_first_as_many_for_every_arm_on_seeds_of_their_own() -> None:
    plan = tuned(*ARMS)
    assert plan.tuning and plan.tuning.protocol == Protocol(
        "train.learning_rate", 2.0, 5, 9, (901, 902), "final_loss", True
    )
    values = {0.00125, 0.0025, 0.005, 0.01, 0.02}
    assert rates(plan.tuning.trials) == dict.fromkeys(["baseline", "relu", "silu"], values)
    assert [run.arm for run in plan.tuning.trials[:10]] == ["baseline"] * 10
    assert {run.seed for run in plan.tuning.trials} == {901, 902}
    assert len({run.id for run in plan.tuning.trials}) == len({run.folder for run in plan.tuning.trials}) == 30
    assert at_work(plan).runs == plan.tuning.trials
    assert plan.tuning.span == (30 + 9, 54 + 9 + 6)
    assert all(run.config.tune.keys == [] for run in (*plan.runs, *plan.tuning.trials))


def test_tuning_is_no_part_of_an_identity() -> None:
    plan, bare = tuned(*ARMS), expand([*TOY, *ARMS])
    assert [run.id for run in plan.runs] == [run.id for run in bare.runs]
    assert plan.tuning
    typed = expand([*TOY, "ablation=relu", "add_baseline=false", "seed=902", "train.learning_rate=0.0025"])
    trials = {(run.arm, run.seed, run.config.train.learning_rate): run for run in plan.tuning.trials}
    trial = trials["relu", 902, 0.0025]
    assert trial.id == typed.runs[0].id
    assert gptlab.compose(list(trial.overrides)).train.learning_rate == 0.0025
    assert bare.tuning is None and "tune" not in bare.to_json()


def test_nothing_is_chosen_before_every_trial_has_ended(here: Path) -> None:
    plan = tuned(*ARMS)
    assert following(plan) is None and reached(plan) is plan
    write(plan, bowl())
    last = here / "outputs" / "runs" / plan.tuning.trials[-1].folder / "result.json"  # type: ignore[union-attr]
    text = last.read_text()
    last.write_text(text.replace('"finished"', '"failed"'))
    assert following(plan) is None
    last.write_text(text)
    assert following(plan) is not None


def test_each_arm_decides_at_its_best_and_at_the_baselines() -> None:
    plan = decided(tuned(*ARMS), bowl(baseline=5e-3, relu=1e-2, silu=5e-3))
    tuning = plan.tuning
    assert tuning and tuning.chosen == {"baseline": 5e-3, "relu": 1e-2, "silu": 5e-3}
    assert rates(plan.runs) == {"baseline": {5e-3}, "relu": {1e-2}, "silu": {5e-3}}
    assert [(run.label, run.seed) for run in plan.runs] == [(run.label, run.seed) for run in tuned(*ARMS).runs]
    assert {(run.label, run.arm, run.seed) for run in tuning.controls} == {
        ("relu+learning_rate=0.005", "relu", seed) for seed in (1, 2, 3)
    }
    assert rates(tuning.controls) == {"relu": {5e-3}}
    bases = {run.seed: run.id for run in plan.runs if run.label == "baseline"}
    for run in (*plan.runs, *tuning.controls):
        assert run.baseline_id == bases[run.seed]
    relu = next(run for run in plan.runs if run.label == "relu")
    assert relu.delta == {"model.activation": ("gelu_tanh", "relu"), "train.learning_rate": (5e-3, 1e-2)}
    assert tuning.controls[0].delta == {"model.activation": ("gelu_tanh", "relu")}
    assert at_work(plan).runs == (*plan.runs, *tuning.controls)
    assert not {run.id for run in tuning.trials} & {run.id for run in at_work(plan).runs}
    assert reached(tuned(*ARMS)).to_json() == plan.to_json()  # the same from the files alone


def test_a_grid_goes_on_where_its_best_lies_at_the_edge() -> None:
    plan = decided(tuned(*ARMS), bowl(baseline=5e-3, relu=8e-2, silu=5e-3))
    tuning = plan.tuning
    assert tuning and tuning.chosen["relu"] == 0.08
    assert {arm: len(values) for arm, values in tuning.values.items()} == {"baseline": 8, "relu": 8, "silu": 8}
    assert tuning.values["relu"][-1] == 0.16 and tuning.values["relu"][0] == 0.00125
    assert len(tuning.trials) == 48
    capped = decided(tuned(*ARMS, "tune.max_trials=6", "experiment.name=capped"), bowl(relu=1.0))
    assert capped.tuning and capped.tuning.chosen["relu"] == 0.04 and len(capped.tuning.trials) == 36


def test_a_value_that_a_seed_diverged_at_is_not_chosen() -> None:
    def loss(arm: str, rate: float) -> float | None:
        return None if arm == "relu" and rate >= 5e-3 else -rate

    plan = decided(tuned(*ARMS, "tune.max_trials=5"), loss)
    assert plan.tuning and plan.tuning.chosen == {"baseline": 0.02, "relu": 0.0025, "silu": 0.02}


def test_a_twin_stays_one_at_every_value() -> None:
    plan = tuned("ablation=swiglu_plain", "match=params", "match.tolerance=3", "seed=1")
    assert plan.tuning
    widths = {run.config.model.hidden_dim for run in plan.tuning.trials if run.arm != "baseline"}
    assert len(widths) == 1 and None not in widths
    later = decided(plan, bowl(baseline=2.5e-3))
    assert list(later.twins) == list(plan.twins) == ["swiglu_plain+match=params"]
    assert {run.config.model.hidden_dim for run in later.runs} == widths | {None}


def test_one_arm_alone_is_tuned_too() -> None:
    plan = decided(tuned("seed=1,2"), bowl(**{"": 1e-2}))
    (label,) = {run.label for run in plan.runs}
    assert plan.tuning and plan.tuning.controls == () and len(plan.tuning.trials) == 10
    assert plan.tuning.chosen[label] in plan.tuning.values[label]


def test_another_key_and_another_grid() -> None:
    words = ("ablation=relu", "tune.keys=[train.weight_decay]", "train.weight_decay=0.1", "tune.factor=10")
    plan = tuned(*words, "tune.seeds=[5]", "tune.points=7")
    assert plan.tuning and plan.tuning.values["relu"] == (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
    assert {run.config.train.weight_decay for run in plan.tuning.trials} == set(plan.tuning.values["relu"])
    assert {run.label for run in plan.tuning.trials if run.arm == "relu"} >= {"relu+weight_decay=0.0001"}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["seed=1,2,901"], "tune-seeds-decide"),
        (["tune.seeds=[1,123]"], "tune-seeds-decide"),
        (["tune.seeds=[5,5]"], "tune-seeds-not-distinct"),
        (["tune.seeds=[]"], "tune-seeds-not-distinct"),
        (["tune.keys=[train.learning_rate,train.weight_decay]"], "tune-several-keys"),
        (["tune.keys=[model.emb_dim]"], "unknown-name"),
        (["tune.keys=[train.batch_size]"], "unknown-name"),
        (["tune.keys=[learning_rate]"], "unknown-name"),
        (["tune.keys=[train.weight_decay]"], "tune-start"),
        (["tune.keys=[train.clip]", "train.clip=null"], "tune-start"),
        (["tune.keys=[train.beta2]"], "out-of-range"),
        (["tune.keys=[train.momentum]"], "train-key-ignored"),
        (["tune.points=4"], "out-of-range"),
        (["tune.factor=1"], "out-of-range"),
        (["tune.points=7", "tune.max_trials=6"], "tune-max-trials"),
        (["train.learning_rate=1e-3,3e-3"], "tune-same-arm"),
        (["train=none"], "tune-untrained"),
        (["experiment.primary_metric=initial_loss"], "tune-metric"),
        (["experiment.primary_metric=parameters"], "tune-metric"),
        (["experiment.primary_metric=train_seconds"], "tune-metric"),
        (["tune.points=5,6"], "tune-swept"),
        (["+tune.trials=3"], "unknown-name"),
    ],
)  # fmt: skip
def test_what_cannot_be_tuned_is_refused(here: Path, words: list[str], code: str) -> None:
    keys = [word.partition("=")[0] for word in words]
    given = [word for word in [*TUNED, "ablation=relu"] if word.partition("=")[0] not in keys]
    with refused(code):
        expand([*given, *words])
    assert not list(here.iterdir())


def test_keys_without_tuning_and_tuning_without_trials_are_refused() -> None:
    with refused("idle-value", key="tune.points"):
        expand([*TOY, "tune.points=7"])
    with refused("tune-without-trials", key="tune.keys"):
        gptlab.compose(TUNED)
    config = gptlab.compose(TOY)
    config.tune.keys = ["train.learning_rate"]
    with refused("tune-without-trials", key="tune.keys"):
        gptlab.build(config)


def test_plan_says_what_comes_and_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *TUNED, *ARMS]) == 0
    out = capsys.readouterr().out
    assert "30 trials (up to 54" in out and "39 to 69 runs in all" in out
    assert main(["plan", *TUNED, *ARMS, "--format", "json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    record = document["tune"]
    assert (record["runs"], record["stage"], len(record["trials"])) == ([39, 69], "trials", 30)
    assert record["arms"]["relu"]["chosen"] is None
    decided(tuned(*ARMS), bowl(relu=1e-2))
    assert main(["plan", *TUNED, *ARMS]) == 0
    assert "best learning_rate of 5: baseline 0.005, relu 0.01, silu 0.005" in capsys.readouterr().out


def test_the_record_is_read_as_it_was_written() -> None:
    plan = decided(tuned(*ARMS), bowl(relu=1e-2))
    assert plan.tuning
    read = parse_plan(json.loads(json.dumps(plan.to_json()))).tuning
    assert read and read.protocol == plan.tuning.protocol
    assert dict(read.values) == dict(plan.tuning.values) and dict(read.chosen) == dict(plan.tuning.chosen)
    assert [(run.id, run.arm, run.value) for run in read.trials] == [
        (run.id, run.arm, run.config.train.learning_rate) for run in plan.tuning.trials
    ]
    assert [(run.id, run.arm, run.baseline_id) for run in read.controls] == [
        (run.id, run.arm, run.baseline_id) for run in plan.tuning.controls
    ]
