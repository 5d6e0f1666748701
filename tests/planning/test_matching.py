"""Matched twins: which key is solved, to what, against counts made by hand; and what is refused before any run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from torch import Tensor, nn

import gptlab
from gptlab import registry
from gptlab.cli import main
from gptlab.config import MatchConfig, flatten
from gptlab.errors import ConfigError
from gptlab.identity import identity
from gptlab.planning.plan import Plan, PlannedRun, expand
from gptlab.probes.parameters import count

TOY = ["model=toy_lesson", "data=sentences", "train=toy"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPTLAB_CONF_PATH", raising=False)
    return tmp_path


def tiny(*words: str) -> Plan:
    return expand(["model=tiny", *words])


def run_of(plan: Plan, label: str) -> PlannedRun:
    return next(run for run in plan.runs if run.label == label)


def refusal(*words: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        tiny(*words)
    return caught.value


def parts(run: PlannedRun) -> dict[str, float]:
    return count(run.config)


def gated(width: int) -> int:
    """Weights of two gated layers at emb_dim 32, with biases, beyond those of two MLPs at width 128."""
    return 2 * ((3 * 32 * width + 2 * width + 32) - (2 * 32 * 128 + 128 + 32))


def test_the_hidden_width_is_solved_to_the_baselines_parameters() -> None:
    plan = tiny("ablation=swiglu_plain", "match=params")
    twin = run_of(plan, "swiglu_plain+match=params")
    best = min(range(1, 400), key=lambda width: abs(gated(width)))
    assert (twin.config.model.hidden_dim, best) == (85, 85)
    assert parts(twin)["parameters"] == 43_712 + gated(85)
    assert twin.delta == {"model.feed_forward": ("mlp", "swiglu"), "model.hidden_dim": (None, 85)}
    assert twin.twin and (twin.twin.start, twin.twin.value, twin.twin.paired) == (128, 85, True)
    assert twin.twin.residual == pytest.approx(100 * gated(85) / 43_712)
    assert twin.twin.plain == 43_712 + gated(128)


def test_both_rows_and_the_baseline_once_and_unmoved() -> None:
    alone = tiny("ablation=none")
    for words in ("none,params", "params,none"):
        for swept in ("none,swiglu_plain", "swiglu_plain"):
            plan = tiny(f"ablation={swept}", f"match={words}", "seed=123,4")
            labels = sorted({run.label for run in plan.runs})
            assert (labels, len(plan.runs)) == (["baseline", "swiglu_plain", "swiglu_plain+match=params"], 6), plan
            base = next(run for run in plan.runs if run.label == "baseline" and run.seed == 123)
            assert base.id == alone.runs[0].id
            assert {run.baseline_id for run in plan.runs if run.seed == 123} == {base.id}
            assert run_of(plan, "swiglu_plain+match=params").twin.of == "swiglu_plain"  # type: ignore[union-attr]


def test_the_solved_value_is_an_ordinary_one() -> None:
    twin = run_of(tiny("ablation=swiglu_plain", "match=params"), "swiglu_plain+match=params")
    typed = tiny("model.feed_forward=swiglu", "model.hidden_dim=85")
    assert twin.id == typed.runs[0].id
    assert twin.config.match == MatchConfig()
    assert "match" not in {key.split(".")[0] for key in flatten(twin.delta)}


@pytest.mark.parametrize("seeds", [1, 3])
def test_seeds_share_the_solution(seeds: int) -> None:
    plan = tiny("ablation=swiglu_plain", "match=params", f"seed=range({seeds})")
    assert {run.config.model.hidden_dim for run in plan.runs} == {None, 85}
    assert list(plan.twins) == ["swiglu_plain+match=params"]


def test_the_body_leaves_embeddings_positions_and_head_out() -> None:
    words = ("model.vocab_size=64", "data=random_tokens", "ablation=[swiglu_plain,no_positions]")
    plan = tiny(*words, "match=none,params_body")
    base, twin = plan.runs[0], next(run for run in plan.runs if run.twin)
    outside = ("parameters/token_embedding", "parameters/position", "parameters/head")
    sizes = [parts(run)["parameters"] - sum(parts(run).get(name, 0) for name in outside) for run in (base, twin)]
    assert twin.twin and [twin.twin.target, twin.twin.reached] == sizes
    assert abs(sizes[1] / sizes[0] - 1) < 0.01
    assert twin.config.model.hidden_dim == 85  # what the lost positions would allow is not for the blocks to spend
    whole = next(run for run in tiny(*words, "match=params").runs if run.twin)
    assert whole.config.model.hidden_dim and whole.config.model.hidden_dim > 85


def test_flops_are_those_of_a_forward_pass() -> None:
    twin = run_of(tiny("ablation=swiglu_plain", "match=flops"), "swiglu_plain+match=flops")
    assert twin.twin and twin.twin.target == 81_920
    assert parts(twin)["flops_forward_per_token"] == twin.twin.reached
    # An extra hidden unit costs 2 FLOPs for each of 3 x 32 weights in 2 layers.
    assert abs(twin.twin.reached - 81_920) <= 2 * 3 * 32 * 2 / 2


def test_the_budget_is_moved_for_training_flops() -> None:
    plan = expand([*TOY, "ablation=swiglu_plain", "match=training_flops"])
    base, twin = plan.runs
    assert base.config.train.budget == 800
    per_step = [3 * parts(run)["flops_forward_per_token"] for run in plan.runs]  # context_length is train.context here
    assert twin.config.train.budget == min(
        (math.floor(800 * per_step[0] / per_step[1]), math.ceil(800 * per_step[0] / per_step[1])),
        key=lambda steps: abs(steps * per_step[1] - 800 * per_step[0]),
    )
    assert twin.config.model.hidden_dim is None
    assert twin.delta["train.budget"] == (800.0, twin.config.train.budget)


def test_shares_of_a_run_follow_a_budget_that_is_moved() -> None:
    words = ["model=tiny", "data=random_tokens", "train=small", "train.budget=200", "train.batch_size=2"]
    base, twin = expand([*words, "ablation=swiglu_plain", "match=training_flops"]).runs
    assert (base.config.train.warmup, base.config.evaluation.every) == (20, 20)
    steps = twin.config.train.budget
    assert steps and steps < 200
    assert (twin.config.train.warmup, twin.config.evaluation.every) == (round(0.1 * steps), round(0.1 * steps))


def test_a_budget_in_tokens_moves_by_whole_steps() -> None:
    words = ["model=tiny", "data=random_tokens", "train=small", "train.budget_unit=tokens", "train.budget=25600"]
    base, twin = expand([*words, "train.batch_size=2", "ablation=swiglu_plain", "match=training_flops"]).runs
    assert base.config.train.budget == 25_600
    assert twin.config.train.budget and twin.config.train.budget % (2 * 64) == 0


def test_what_costs_as_much_already_is_its_own_twin() -> None:
    plan = tiny("ablation=relu", "match=none,params")
    assert [run.label for run in plan.runs] == ["baseline", "relu"]
    assert plan.twins["relu"].residual == 0
    assert any("relu" in note for note in plan.notes)
    assert tiny("ablation=relu", "match=params").runs[1].id == plan.runs[1].id
    both = tiny("ablation=swiglu_plain", "match=params,flops")  # here both come to one width
    assert [run.label for run in both.runs] == ["baseline", "swiglu_plain+match=params"]


def test_values_without_an_ablation_are_matched_to_the_first() -> None:
    plan = tiny("model.feed_forward=mlp,swiglu", "match=params,none")
    assert [run.label for run in plan.runs] == [
        "feed_forward=mlp", "feed_forward=swiglu+match=params", "feed_forward=swiglu",
    ]  # fmt: skip
    assert {run.baseline_id for run in plan.runs} == {plan.runs[0].id}


def test_other_keys_when_asked_and_no_longer_paired() -> None:
    words = ("ablation=swiglu_plain", "match=params", "match.tolerance=5")
    twin = tiny(*words, "match.by=model.emb_dim").runs[1]
    assert (twin.label, twin.config.model.emb_dim) == ("swiglu_plain+match=params+by=emb_dim", 28)
    assert twin.config.model.emb_dim % twin.config.model.n_heads == 0
    assert twin.twin and not twin.twin.paired
    assert "no longer paired" in twin.twin.words
    free = tiny("ablation=swiglu_plain", "match=params", "rng=global").runs[1]
    assert free.twin and not free.twin.paired


def test_a_rounded_width_stays_rounded() -> None:
    plan = tiny("model.hidden_multiple=8", "ablation=swiglu_plain", "match=params", "match.tolerance=5")
    assert plan.runs[1].config.model.hidden_dim == 88


class Ranked(nn.Module):
    """A feed-forward layer whose size is an option of its own."""

    def __init__(self, emb_dim: int, rank: int = 4) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(emb_dim, rank), nn.Linear(rank, emb_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


def test_an_option_of_a_component_can_be_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._components, "feed_forward", dict(registry.components("feed_forward")))
    monkeypatch.setattr(registry, "_registrars", set(registry._registrars))
    registry.register("feed_forward", "ranked")(Ranked)
    twin = tiny("model.feed_forward=mlp,ranked", "match=params", "match.by=model.options.feed_forward.rank").runs[1]
    assert twin.config.model.options == {"feed_forward": {"rank": 128}}
    assert twin.twin and (twin.twin.start, twin.twin.residual) == (4, 0)


def test_an_experiment_may_ask(here: Path) -> None:
    (here / "conf" / "experiment").mkdir(parents=True)
    body = "# @package _global_\ndefaults:\n  - override /model: tiny\nexperiment: {name: twins}\n"
    sweep = "hydra:\n  sweeper:\n    params:\n      ablation: none,swiglu_plain\n"
    (here / "conf" / "experiment" / "swept.yaml").write_text(f"{body}{sweep}      match: none,params\n")
    (here / "conf" / "experiment" / "fixed.yaml").write_text(f"{body}match: {{cost: params}}\n{sweep}")
    labels = [[run.label for run in expand([f"experiment={name}"]).runs] for name in ("swept", "fixed")]
    assert labels == [
        ["baseline", "swiglu_plain", "swiglu_plain+match=params"],
        ["baseline", "swiglu_plain+match=params"],
    ]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["match=params"], "match-without-baseline"),
        (["ablation=none", "match=params"], "match-without-baseline"),
        (["ablation=expansion_2", "match=none,params"], "match-undoes"),
        (["ablation=swiglu_plain", "match=params", "match.by=model.n_heads"], "match-key-idle"),
        (["ablation=attention_only", "match=params"], "model-key-unread"),
        (["ablation=swiglu_plain", "match.tolerance=2"], "idle-value"),
        (["ablation=swiglu_plain", "match=params", "match.tolerance=0"], "out-of-range"),
        (["ablation=swiglu_plain", "match=params", "match.by=hidden_dim"], "unknown-name"),
        (["ablation=swiglu_plain", "match=params", "match.by=model.vocab_size"], "unknown-name"),
        (["ablation=swiglu_plain", "match=params", "match.by=model.expansion"], "unknown-name"),
        (["ablation=swiglu_plain", "match=training_flops", "match.by=model.hidden_dim"], "unknown-name"),
        (["ablation=swiglu_plain", "match=parameters"], "unknown-name"),
        (["ablation=swiglu_plain", "match=training_flops"], "match-untrained"),
        (["ablation=swiglu_plain", "train=toy", "data=random_tokens", "train.budget_unit=seconds",
          "match=training_flops"], "match-in-seconds"),
        (["ablation=swiglu_plain", "match=params", "+match.key=3"], "unknown-name"),
    ],
)  # fmt: skip
def test_what_cannot_be_matched_is_refused(words: list[str], code: str) -> None:
    error = refusal(*words)
    assert error.code == code, error
    assert len(str(error).splitlines()) == 1


def test_a_member_without_a_twin_is_left_out_where_that_is_asked() -> None:
    words = ("ablation=swiglu_plain,relu", "match=params", "match.by=model.n_layers")
    plan = tiny(*words, "on_invalid=skip")
    assert [run.label for run in plan.runs] == ["baseline", "relu"]
    assert [one["overrides"] for one in plan.skipped] == ["ablation=swiglu_plain"]
    both = tiny("ablation=swiglu_plain", "match=none,params", "match.by=model.n_layers", "on_invalid=skip")
    assert [run.label for run in both.runs] == ["baseline", "swiglu_plain"]
    assert refusal(*words).code == "match-none-near"
    assert refusal("ablation=swiglu_plain", *words[1:], "on_invalid=skip").code == "match-none-near"


def test_nothing_near_enough_names_the_two_nearest() -> None:
    error = refusal("ablation=swiglu_plain", "match=params", "match.by=model.n_layers")
    assert error.code == "match-none-near"
    assert [(value, cost) for value, cost, _ in error.facts["nearest"]] == [(1, 35_328), (2, 52_160)]
    assert (error.facts["target"], error.facts["tolerance"]) == (43_712, 1.0)
    assert [round(off) for *_, off in error.facts["nearest"]] == [-19, 19]
    tight = refusal("ablation=swiglu_plain", "match=params", "match.tolerance=0.01")
    assert [value for value, *_ in tight.facts["nearest"]] == [84, 85]


def test_the_face_in_python() -> None:
    config = gptlab.compose(["model=tiny", "ablation=swiglu_plain", "match=params"])
    assert (config.model.hidden_dim, config.match.cost) == (85, "none")
    assert sum(p.numel() for p in gptlab.build(config).parameters()) == 43_712 + gated(85)
    assert identity(config) == tiny("ablation=swiglu_plain", "match=params").runs[1].id
    config.match.cost = "params"
    for call in (gptlab.build, gptlab.run):
        with pytest.raises(ConfigError) as caught:
            call(config)
        assert caught.value.code == "match-unsolved"


def test_plan_says_what_was_solved(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "model=tiny", "ablation=swiglu_plain", "match=none,params"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "swiglu_plain+match=params: matched: hidden_dim 128 -> 85: parameters 43,732, baseline 43,712" in out
    assert main([*words, "--format", "json"]) == 0
    record: dict[str, Any] = json.loads(capsys.readouterr().out)["match"]["twins"]["swiglu_plain+match=params"]
    assert (record["by"], record["start"], record["value"], record["of"]) == (
        "model.hidden_dim", 128, 85, "swiglu_plain",
    )  # fmt: skip
    assert record["residual_percent"] == pytest.approx(100 * 20 / 43_712)


def test_a_study_shows_it_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    """Untrained, so that it takes seconds: table, comparison, JSON, report and audit say what was solved."""
    words = ["model=toy_lesson", "data=sentences", "probes=counting", "train=none"]
    study = gptlab.sweep(words, ablation="swiglu_plain", match=["none", "params"], **{"match.tolerance": 3})
    assert study.states == ("finished",) * 3
    label = "swiglu_plain+match=params"
    frame = study.compare().frame().set_index("variant")
    assert frame.loc[label, "matched"].startswith("hidden_dim 32 -> ")
    assert abs(frame.loc[label, "residual_percent"]) <= 3
    assert pd.isna(frame.loc["swiglu_plain", "matched"])
    assert main(["compare", str(study.folder)]) == 0
    assert "hidden_dim 32 ->" in " ".join(capsys.readouterr().out.split())
    assert "hidden_dim 32 -" in study.report().read_text()
    assert main(["audit", str(study.folder)]) in (1, 3)
    line = next(text for text in capsys.readouterr().out.splitlines() if "matched cost" in text)
    assert label in line
    assert main([*words, "ablation=swiglu_plain", "match=none,params", "match.tolerance=3"]) == 0
    assert f"Matched: {label}: hidden_dim 32 -> " in capsys.readouterr().out
