"""The list of runs: sweeps, baselines, labels, and the sweeps that would mislead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gptlab.cli import main
from gptlab.declare import sources
from gptlab.declare.composer import compose
from gptlab.errors import GptlabError
from gptlab.planning.changed import option_defaults
from gptlab.planning.plan import Plan, expand
from tests.support.refusals import check_refusal

GLOBAL = "# @package _global_\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, with no folders of configs announced."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(sources.ENVIRONMENT, raising=False)
    return tmp_path


def add(folder: Path, group: str, name: str, body: str) -> None:
    (folder / "conf" / group).mkdir(parents=True, exist_ok=True)
    (folder / "conf" / group / f"{name}.yaml").write_text(GLOBAL + body)


def tiny(*overrides: str) -> Plan:
    return expand(["model=tiny", *overrides])


def labels(plan: Plan) -> list[str]:
    return [run.label for run in plan.runs]


def compared(plan: Plan) -> dict[str, str | None]:
    """Label and seed of each run -> of the run that it is compared with."""
    names = {run.id: f"{run.label} {run.seed}" for run in plan.runs}
    return {names[run.id]: names.get(run.baseline_id or "") for run in plan.runs}


def refusal(*overrides: str) -> GptlabError:
    with pytest.raises(GptlabError) as caught:
        tiny(*overrides)
    return caught.value


def test_single_run_is_compared_with_nothing() -> None:
    plan = tiny("model.activation=relu")
    (run,) = plan.runs
    assert (run.label, run.baseline_id, run.delta, plan.baseline) == ("activation=relu", None, {}, "")


def test_an_ablation_brings_its_baseline_along() -> None:
    plan = tiny("ablation=relu")
    assert labels(plan) == ["baseline", "relu"]
    assert compared(plan) == {"baseline 123": "baseline 123", "relu 123": "baseline 123"}
    assert plan.runs[1].delta == {"model.activation": ("gelu_tanh", "relu")}
    assert plan.baseline == "baseline"
    assert "added" in plan.notes[0] and "ablation=none" in plan.notes[0]


def test_the_baseline_can_be_left_out() -> None:
    plan = tiny("ablation=relu", "add_baseline=false")
    assert labels(plan) == ["relu"]
    assert plan.runs[0].baseline_id is None
    assert plan.runs[0].delta == {"model.activation": ("gelu_tanh", "relu")}


def test_a_baseline_that_was_asked_for_is_not_added_again() -> None:
    plan = tiny("ablation=relu,none,[relu,post_ln]")
    assert labels(plan) == ["relu", "baseline", "relu+post_ln"]
    assert plan.notes == ()


def test_each_seed_has_its_own_baseline() -> None:
    plan = tiny("ablation=relu", "seed=1,2")
    assert compared(plan) == {
        "baseline 1": "baseline 1", "baseline 2": "baseline 2", "relu 1": "baseline 1", "relu 2": "baseline 2",
    }  # fmt: skip
    assert labels(plan) == ["baseline", "baseline", "relu", "relu"]
    assert len({run.folder for run in plan.runs}) == 4


def test_other_overrides_hold_for_the_baseline_too() -> None:
    plan = tiny("model.n_layers=1,3", "ablation=relu")
    assert compared(plan) == {
        "baseline+n_layers=1 123": "baseline+n_layers=1 123",
        "baseline+n_layers=3 123": "baseline+n_layers=3 123",
        "relu+n_layers=1 123": "baseline+n_layers=1 123",
        "relu+n_layers=3 123": "baseline+n_layers=3 123",
    }
    assert all(list(run.delta) in ([], ["model.activation"]) for run in plan.runs)


def test_what_all_runs_share_is_in_no_label() -> None:
    assert labels(tiny("model.n_layers=1", "ablation=relu")) == ["baseline", "relu"]


def test_without_ablations_the_first_value_is_the_baseline() -> None:
    plan = tiny("model.activation=gelu_tanh,relu", "seed=1,2")
    assert compared(plan) == {
        "activation=gelu_tanh 1": "activation=gelu_tanh 1",
        "activation=gelu_tanh 2": "activation=gelu_tanh 2",
        "activation=relu 1": "activation=gelu_tanh 1",
        "activation=relu 2": "activation=gelu_tanh 2",
    }
    assert plan.baseline == "activation=gelu_tanh"


def test_seeds_alone_make_one_variant() -> None:
    plan = tiny("seed=1,2")
    assert [(run.label, run.seed, run.baseline_id) for run in plan.runs] == [
        ("baseline", 1, None),
        ("baseline", 2, None),
    ]


def test_zipped_settings() -> None:
    plan = tiny("model={n_layers:1,emb_dim:16},{n_layers:3}")
    assert labels(plan) == ["n_layers=1+emb_dim=16", "n_layers=3"]
    assert [(run.config.model.n_layers, run.config.model.emb_dim) for run in plan.runs] == [(1, 16), (3, 32)]
    assert plan.runs[0].config.model.vocab_size == 256  # model=tiny is not lost


def test_options_of_components_can_be_swept() -> None:
    assert labels(tiny("model.options.norm.eps=0.1,0.2")) == ["norm.eps=0.1", "norm.eps=0.2"]


def test_glob() -> None:
    plan = tiny("ablation=glob(no_shortcut*)")
    assert labels(plan) == ["baseline", "no_shortcut", "no_shortcut_attention", "no_shortcut_feed_forward"]


def test_an_experiment_s_sweep_runs_when_it_is_named(here: Path) -> None:
    body = """
        defaults: [{override /model: tiny}]
        experiment: {name: mine, question: why, primary_metric: grad_norm}
        hydra: {sweeper: {params: {ablation: 'relu,[relu,post_ln]', seed: '1,2'}}}
    """
    add(here, "experiment", "mine", body)
    plan = expand(["experiment=mine"])
    assert (plan.study, plan.question, plan.primary_metric) == ("mine", "why", "grad_norm")
    assert [f"{run.label} {run.seed}" for run in plan.runs] == [
        "baseline 1", "baseline 2", "relu 1", "relu 2", "relu+post_ln 1", "relu+post_ln 2",
    ]  # fmt: skip
    assert labels(expand(["experiment=mine", "ablation=silu", "seed=7"])) == ["baseline", "silu"]


def test_chapter_4_composes() -> None:
    plan = expand(["experiment=chapter4"])
    assert len(plan.runs) >= 12 and plan.study == "chapter4"
    assert plan.runs[0].label == "baseline" and plan.runs[0].baseline_id == plan.runs[0].id
    assert all(run.delta for run in plan.runs[1:])


def test_an_experiment_may_choose_its_baseline(here: Path) -> None:
    add(here, "experiment", "post", "experiment: {name: post, baseline: post_ln}\n")
    plan = tiny("experiment=post", "ablation=none,[post_ln,relu]")
    assert compared(plan) == {
        "post_ln 123": "post_ln 123",
        "no_ablation 123": "post_ln 123",
        "post_ln+relu 123": "post_ln 123",
    }
    assert plan.runs[2].delta == {"model.activation": ("gelu_tanh", "relu")}


def test_a_baseline_that_nothing_is_compared_with(here: Path) -> None:
    add(here, "experiment", "mine", "experiment: {name: mine, baseline: relu}\n")
    facts = {"key": "experiment.baseline", "value": "relu"}
    for idle in (["experiment.baseline=relu"], ["experiment=mine", "seed=1,2"]):
        check_refusal(refusal(*idle), "baseline-without-ablation", **facts)
    for alone in (
        ["ablation=relu", "experiment.baseline=relu", "model.n_layers=1,2"],
        ["ablation=relu", "experiment=mine"],
    ):
        check_refusal(refusal(*alone), "all-are-baselines", **facts)
    assert len(tiny("ablation=relu,none", "experiment=mine").runs) == 2


@pytest.mark.parametrize(
    ("overrides", "code", "facts"),
    [
        (
            ["ablation=glob(pots*)"],
            "glob-matches-nothing",
            {"suggestion": "post_ln", "override": "ablation=glob(pots*)"},
        ),
        (["seed=range(3,1)"], "sweep-of-nothing", {"override": "seed=range(3,1)"}),
        (["seed=interval(0,1)"], "override-grammar", {"override": "seed=interval(0,1)"}),
        (["seed=0,0,1"], "same-run-twice", {"one": "model=tiny seed=0", "two": "model=tiny seed=0"}),
        (['output_dir="a","b"'], "output-dir-swept", {"key": "output_dir"}),
        (["ablation=[relu,silu]"], "ablations-collide", {"other": "relu", "set_to": "relu", "name": "silu"}),
        (
            ["ablation=relu", "model.activation=silu"],
            "ablation-changes-nothing",
            {"key": "ablation", "value": "relu"},
        ),
        (
            ["ablation=relu,silu", "label=x"],
            "label-twice",
            {
                "key": "label",
                "value": "x",
                "one": 'model=tiny ablation=relu label="x"',
                "two": 'model=tiny ablation=silu label="x"',
            },
        ),
        (["experiment=chapter4,none"], "one-experiment-per-command", {"override": "experiment=chapter4,none"}),
        (["experiment=glob(*)"], "one-experiment-per-command", {"override": "experiment=glob(*)"}),
        (["experiment.name=a/b"], "study-name", {"key": "experiment.name", "value": "a/b"}),
        (["experiment.name=.."], "study-name", {"key": "experiment.name", "value": ".."}),
        (
            ["ablation=relu,rleu"],
            "unknown-name",
            {"key": "ablation=rleu", "value": "rleu", "suggestion": "relu", "file": "conf/ablation/rleu.yaml"},
        ),
        (["model.n_heads=4,7"], "heads-divide", {"key": "model.n_heads", "value": 7, "emb_dim": 32, "suggestion": 8}),
        (
            ["experiment.baseline=rleu", "ablation=relu"],
            "unknown-name",
            {
                "key": "experiment.baseline=rleu",
                "value": "rleu",
                "suggestion": "relu",
                "file": "conf/ablation/rleu.yaml",
            },
        ),
    ],
)
def test_sweeps_that_would_mislead(overrides: list[str], code: str, facts: dict[str, Any]) -> None:
    check_refusal(refusal(*overrides), code, **facts)


def test_twin_ablations_are_refused(here: Path) -> None:
    add(here, "ablation", "relu_again", "model: {activation: relu}\n")
    twins = {"one": "model=tiny ablation=relu", "two": "model=tiny ablation=relu_again"}
    check_refusal(refusal("ablation=relu,relu_again"), "same-run-twice", **twins)


def test_an_ablation_that_changes_nothing_is_refused_also_within_a_stack(here: Path) -> None:
    add(here, "ablation", "idle", "model: {activation: gelu_tanh}\n")
    check_refusal(refusal("ablation=idle"), "ablation-changes-nothing", key="ablation", value="idle")
    check_refusal(
        refusal("ablation=none,relu,[post_ln,idle]"), "ablation-changes-nothing", key="ablation", value="idle"
    )
    add(here, "ablation", "empty", "")
    check_refusal(refusal("ablation=empty"), "ablation-changes-nothing", key="ablation", value="empty")


def test_a_list_is_no_sweep(here: Path) -> None:
    add(here, "experiment", "listed", "hydra: {sweeper: {params: {ablation: [relu, post_ln]}}}\n")
    facts = {"where": "experiment=listed", "name": "ablation", "form": "relu,post_ln"}
    check_refusal(refusal("experiment=listed"), "sweep-as-yaml-list", **facts)


def test_an_ablation_cannot_carry_a_sweep(here: Path) -> None:
    add(here, "ablation", "sweeping", "model: {n_layers: 1}\nhydra: {sweeper: {params: {seed: '1,2'}}}\n")
    check_refusal(refusal("ablation=sweeping"), "ablation-sets-hydra", name="sweeping")


def test_an_error_in_a_sweep_names_its_run() -> None:
    check_refusal(
        refusal("ablation=none,no_norm", "model.norm=rmsnorm"),
        "model-key-unread",
        key="model.norm",
        value="rmsnorm",
        run=["model=tiny", "ablation=no_norm", "model.norm=rmsnorm"],
    )


def test_the_same_words_plan_the_same_runs() -> None:
    first, second = (tiny("ablation=relu,post_ln", "seed=1,2").to_json(["gptlab"]) for _ in range(2))
    assert json.dumps(first) == json.dumps(second)
    assert first["schema"] == 1 and first["command"] == ["gptlab"]
    assert list(first["runs"][0]) == ["id", "label", "seed", "variant", "folder", "overrides", "baseline_id", "delta"]


def test_folders_are_short_and_safe() -> None:
    (run,) = tiny("probes.generation.prompt='../a/b" + "x" * 300 + "'").runs
    assert len(run.folder) <= 120 and "/" not in run.folder
    assert run.folder.endswith(f"-s123-{run.id[:8]}")
    assert tiny("ablation=[post_ln,relu]").runs[1].folder.startswith("post_ln+relu-s123-")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["train.budget=5"], True),
        ([], False),  # nothing is trained
        (["train.budget=5", "model.init=gpt2"], False),
        (["train.budget=5", "model.position=sinusoidal"], False),
        (["train.budget=5", "model.tie_weights=true", "ablation=none,relu"], False),  # all are tied
        (["train.budget=5", "model.options.init.embedding_std=0.05"], False),
    ],
)
def test_a_tie_that_would_be_judged_by_its_init_is_named(overrides: list[str], said: bool) -> None:
    ablation = [] if any(word.startswith("ablation=") for word in overrides) else ["ablation=none,tied"]
    notes = expand(["model=tiny", *ablation, *overrides]).notes
    assert any("the tied table starts at" in note for note in notes) == said


def test_a_plan_says_what_training_takes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "model=tiny", "train.budget=2000", "train.budget_unit=tokens"]
    costs = []
    for batch_size, optimizer in ((4, "adamw"), (64, "adamw"), (4, "sgd")):
        own = [f"train.batch_size={batch_size}", f"train.optimizer={optimizer}"]
        assert main([*words, *own, "--format", "json"]) == 0
        (run,) = json.loads(capsys.readouterr().out)["runs"]
        costs.append(run["cost"])
    small, large, plain = costs
    assert (small["steps"], small["tokens"]) == (8, 2048)  # 4 x 64 tokens a step
    assert small["training_flops"] == pytest.approx(3 * 2048 * small["flops_forward_per_token"], rel=0.01)
    assert small["peak_mib"] > 4 * small["mib"]  # weights, gradients, and two numbers of AdamW for each
    assert small["peak_mib"] - plain["peak_mib"] == pytest.approx(small["mib"])
    assert large["peak_mib"] > 5 * small["peak_mib"]  # activations are most of it
    assert main([*words, "train.batch_size=4"]) == 0
    assert "Each trains 8 steps: 2,048 tokens, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "key", "pair"),
    [
        ("ablation=attention_gate_headwise", "model.options.attention.gate", ("none", "headwise")),
        ("ablation=logit_scale", "model.options.head.scale", (1.0, 0.125)),
        ("ablation=partial_rope", "model.options.position.fraction", (None, 0.25)),  # learned positions have no such
    ],
)
def test_an_option_that_the_baseline_leaves_at_its_default_is_written_out(words: str, key: str, pair: object) -> None:
    base, variant = expand(["model=tiny", f"{words.replace('=', '=none,')}"]).runs
    assert variant.delta[key] == pair
    assert base.delta == {}


def test_options_of_the_data_have_their_defaults_too() -> None:
    found = option_defaults(compose(["model=tiny", "data=markov", "data.options.order=1", "train.budget=5"]))
    assert (found["data.options.order"], found["model.options.attention.gate"]) == (2, "none")
