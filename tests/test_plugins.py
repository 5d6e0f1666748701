"""One module of a user's folder adds a probe with keys and metrics, an optimizer, a schedule, data and an analysis."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from safetensors.torch import load_file

import gptlab
from gptlab import metrics, registry
from gptlab.cli import main
from gptlab.config import Config
from gptlab.identity import delta, identity
from gptlab.metrics import Metric
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("scratch_registry")

MODULE = '''
import torch
from gptlab import register
from gptlab.analyses import Findings
from gptlab.data.numbers import random_tokens
from gptlab.metrics import Metric
from gptlab.probes.subject import Measurement, Subject


@register(
    "probe", "weight_norms",
    metrics=[Metric("weight_norm", "norm", "neither", "positive_scale", "p-norm of all weights together")],
    layer_metrics=[Metric("block_norm", "norm", "neither", "positive_scale", "p-norm of the weights of a block")],
)
def weight_norms(subject: Subject, power: float = 2.0) -> Measurement:
    """How large the weights are."""
    def norm(module):
        return torch.cat([w.detach().flatten() for w in module.parameters()]).norm(power).item()
    rows = [
        {"step": 0, "layer": i, "part": "all", "metric": "block_norm", "value": norm(block)}
        for i, block in enumerate(subject.model.trf_blocks)
    ]
    return Measurement(metrics={"weight_norm": norm(subject.model)}, tables={"layers": rows})


@register("optimizer", "sign_descent", elementwise=True)
def sign_descent(groups, learning_rate: float, shrink: float = 1.0):
    """w - rate * shrink * sign(gradient)."""
    return Sign(groups, learning_rate, shrink)


class Sign(torch.optim.Optimizer):
    def __init__(self, groups, lr, shrink):
        super().__init__(groups, {"lr": lr, "shrink": shrink})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                weight.sub_(weight.grad.sign(), alpha=group["lr"] * group["shrink"])


@register("schedule", "stairs")
def stairs(step: int, total: int, warmup: int, height: float = 0.5) -> float:
    """1, and `height` from half way on."""
    return 1.0 if step < (warmup + total) / 2 else height


@register("data", "echo", tokenizers=("ids",))
def echo(vocab_size: int, seed: int, offset: int = 0):
    """Random ids from another seed."""
    return random_tokens(vocab_size, seed + offset)


@register("analysis", "count_variants")
def count_variants(variants, times: int = 1) -> Findings:
    """How many there are."""
    return Findings(summary=[("variants", times * len(variants), "how many")])
'''
TINY = [
    "model=tiny",
    "model.n_layers=1",
    "model.emb_dim=8",
    "model.n_heads=2",
    "model.context_length=8",
    "model.vocab_size=64",
]
ON = ["plugins=[my_lab]", *TINY, "data=random_tokens", "probes=counting"]
TRAINED = [*ON, "train.budget=4", "train.batch_size=2", "evaluation.every=4", "train.optimizer=sign_descent"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "my_lab.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("my_lab", None)
    yield tmp_path
    sys.modules.pop("my_lab", None)


def composed(*overrides: str) -> Config:
    return gptlab.compose([*ON, *overrides])


# --- a probe


def test_a_probe_its_keys_and_its_metrics(here: Path) -> None:
    config = composed("probes.weight_norms.power=1")
    run = gptlab.run(config, here / "run")
    model = gptlab.build(config)
    expected = math.fsum(weight.abs().sum().item() for weight in model.parameters())
    assert run.metrics["weight_norm"] == pytest.approx(expected, rel=1e-5)
    block = math.fsum(weight.abs().sum().item() for weight in model.trf_blocks.parameters())
    (row,) = run.layers[run.layers["metric"] == "block_norm"].to_dict("records")
    assert row["value"] == pytest.approx(block, rel=1e-5)
    assert metrics.METRICS["weight_norm"].source == "weight_norms" and metrics.METRICS["block_norm"].source == ""
    saved = (here / "run" / "config.yaml").read_text()
    assert "weight_norms:\n    power: 1.0\n" in saved  # in its declared type


def test_a_probe_is_off_until_it_is_named_and_then_part_of_the_identity() -> None:
    off, on, other = composed(), composed("probes.weight_norms={}"), composed("probes.weight_norms.power=3")
    assert not hasattr(off.probes, "weight_norms")
    assert delta(on, other) == {"probes.weight_norms.power": (2.0, 3.0)}
    assert len({identity(off), identity(on), identity(other)}) == 3
    assert identity(composed("probes.weight_norms=null")) == identity(off)
    assert identity(composed("probes.weight_norms.power=2")) == identity(on)


@pytest.mark.parametrize(
    ("override", "code", "facts"),
    [
        ("probes.weight_norm.power=1", "unknown-name", {"value": "weight_norm", "suggestion": "weight_norms"}),
        ("probes.weight_norms.pwoer=1", "unknown-name", {"value": "pwoer", "suggestion": "power"}),
        ("probes.weight_norms.power=soft", "wrong-type", {"key": "probes.weight_norms.power", "value": "soft"}),
        ("probes.weight_norms=3", "wrong-type", {"key": "probes.weight_norms", "value": "3"}),
        ("experiment.primary_metric=block_norm", "metric-of-no-run", {"value": "block_norm", "cause": "along-the-way"}),
        (
            "experiment.primary_metric=weight_norm",
            "metric-of-no-run",
            {"value": "weight_norm", "cause": "probe-left-out"},
        ),
    ],
)
def test_what_a_probe_lacks_is_refused(override: str, code: str, facts: dict[str, Any]) -> None:
    with refused(code, **facts):
        composed(override)


def test_without_the_plugin_its_probe_does_not_exist() -> None:
    with refused("unknown-name", key="probes.weight_norms", value="weight_norms"):
        gptlab.compose([*TINY, "probes.weight_norms={}"])


def test_a_file_of_the_users_turns_it_on(here: Path) -> None:
    (here / "conf" / "probes").mkdir(parents=True)
    (here / "conf" / "probes" / "norms.yaml").write_text("parameters: {}\nweight_norms: {power: 4}\n")
    words = ["plugins=[my_lab]", *TINY, "data=random_tokens", "probes=norms"]
    assert gptlab.compose(words).probes.weight_norms.power == 4.0  # type: ignore[attr-defined]
    (here / "conf" / "probes" / "norms.yaml").write_text("parameters: {}\nweight_nrms: {power: 4}\n")
    with refused(
        "unknown-name",
        key="probes.weight_nrms",
        value="weight_nrms",
        suggestion="weight_norms",
        file="conf/probes/norms.yaml",
        line=2,
    ):
        gptlab.compose(words)


def test_a_study_of_it_is_compared_without_the_plugin(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*ON, "probes.weight_norms.power=1", "experiment.primary_metric=weight_norm", "ablation=relu,expansion_1"]
    assert main([*words, "seed=1,2"]) == 0
    assert "weight_norm" in capsys.readouterr().out
    for name in ("weight_norm", "block_norm"):
        del metrics.METRICS[name]
    monkeypatch.delitem(sys.modules, "my_lab")
    (here / "my_lab.py").unlink()
    comparison = gptlab.compare("outputs/runs")
    assert comparison.primary_metric == "weight_norm"
    assert metrics.METRICS["weight_norm"].kind == "positive_scale" and metrics.METRICS["weight_norm"].unit == "norm"
    study = gptlab.load("outputs/runs")
    assert study.runs["weight_norm"].notna().all() and "block_norm" in set(study.layers["metric"])


def test_it_looks_during_training(here: Path) -> None:
    run = gptlab.run(composed("probes.weight_norms={}", "train.budget=4", "train.probe_every=2"), here / "run")
    steps = run.layers[run.layers["metric"] == "block_norm"]["step"].tolist()
    assert steps == [0, 2, 4]


def test_a_metric_is_declared_once() -> None:
    present = metrics.METRICS["loss"]
    with refused(
        "metric-declared-twice",
        name="loss",
        meaning="of one batch before training; squared error for vectors",
        unit="nats/token",
    ):
        metrics.declare(Metric("loss", "bits", "lower", "stochastic", "another one"))
    assert metrics.METRICS["loss"] == present
    with refused("unknown-name", key="metric mine: direction", value="up"):
        metrics.declare(Metric("mine", "1", "up", "stochastic", "no such direction"))  # type: ignore[arg-type]
    assert "mine" not in metrics.METRICS


# --- an optimizer and a schedule


def trained(here: Path, *overrides: str) -> tuple[gptlab.api.Run, dict[str, Any]]:
    run = gptlab.run(gptlab.compose([*TRAINED, "train.log_every=1", "train.clip=null", *overrides]), here / "trained")
    assert run.result["error"] is None, run.result["traceback"]
    lines = [json.loads(line) for line in (here / "trained" / "metrics.jsonl").read_text().splitlines()]
    return run, {line["step"]: line["metrics"] for line in lines}


def test_an_optimizer_and_a_schedule_with_options(here: Path) -> None:
    words = ["train.schedule=stairs", "train.options.schedule.height=0.25", "train.learning_rate=0.01"]
    run, history = trained(here, *words, "train.options.optimizer.shrink=0.5")
    rates = [history[step]["learning_rate"] for step in (1, 2, 3, 4)]
    assert rates == pytest.approx([0.01, 0.01, 0.0025, 0.0025])
    (checkpoint,) = (run.folder / "checkpoints").glob("step_*")
    weights = load_file(checkpoint / "model.safetensors")
    before = dict(gptlab.build(gptlab.compose([*TRAINED])).named_parameters())
    moved = (weights["out_head.weight"] - before["out_head.weight"]).abs() / 0.5
    sums = {round(a * 0.01 + b * 0.0025, 6) for a in (0, 2, 1) for b in (0, 2, 1)}  # signs that agree or cancel
    assert {round(value, 6) for value in moved.flatten().tolist()} <= sums
    assert moved.max().item() == pytest.approx(0.025, rel=1e-4)


@pytest.mark.parametrize(
    ("overrides", "code", "facts"),
    [
        (["train.optimizer=sign_decent"], "unknown-name", {"value": "sign_decent", "suggestion": "sign_descent"}),
        (["train.schedule=stair"], "unknown-name", {"value": "stair", "suggestion": "stairs"}),
        (["train.options.optimizer.shirnk=1"], "unknown-name", {"value": "shirnk", "suggestion": "shrink"}),
        (
            ["train.options.optimizer.shrink=small"],
            "wrong-type",
            {"key": "train.options.optimizer.shrink", "value": "small"},
        ),
        (["train.options.optimiser.shrink=1"], "unknown-name", {"value": "optimiser", "suggestion": "optimizer"}),
        (["train.beta1=0.8"], "train-key-ignored", {"key": "train.beta1"}),
        (
            ["train.schedule=stairs", "train.budget_unit=seconds"],
            "schedule-of-seconds",
            {"key": "train.schedule", "value": "stairs"},
        ),
    ],
)
def test_what_they_lack_is_refused(overrides: list[str], code: str, facts: dict[str, Any]) -> None:
    with refused(code, **facts):
        gptlab.compose([*(word for word in TRAINED if not word.startswith(overrides[0].partition("=")[0])), *overrides])


def test_options_at_their_defaults_are_no_change() -> None:
    plain = gptlab.compose(TRAINED)
    assert identity(plain) == identity(gptlab.compose([*TRAINED, "train.options.optimizer.shrink=1"]))
    assert identity(plain) != identity(gptlab.compose([*TRAINED, "train.options.optimizer.shrink=2"]))


def test_a_schedule_that_gives_no_rate_fails_its_run(here: Path) -> None:
    config = gptlab.compose([*TRAINED, "train.schedule=stairs", "train.options.schedule.height=-1"])
    assert "train.schedule=stairs" in gptlab.run(config, here / "run").result["error"]


# --- data and an analysis


def test_data_with_an_option(here: Path) -> None:
    overrides = ["plugins=[my_lab]", *TINY, "data=random_tokens", "data.source=echo", "probes.generation=null"]
    one = gptlab.run(gptlab.compose([*overrides, "data.options.offset=5", "seed=1"]), here / "one")
    plain = gptlab.run(gptlab.compose([*overrides, "seed=1"]), here / "plain")
    assert one.result["state"] == plain.result["state"] == "finished"
    assert one.metrics["loss"] != plain.metrics["loss"]


def test_an_analysis_comes_after_the_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["experiment.name=mine", "experiment.analysis=count_variants", "++experiment.options.times=10"]
    assert main([*ON, "ablation=relu", *words]) == 0
    assert "20" in capsys.readouterr().out
    summary = pd.read_csv(next((here / "outputs" / "mine").rglob("summary.csv")))
    assert summary["value"].tolist() == [20]


# --- all kinds alike


def test_the_listing_has_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["components", "plugins=[my_lab]"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    for line in (
        "weight_norms How large the weights are. [power=2]",
        "sign_descent w - rate * shrink * sign(gradient). [shrink=1]",
        "stairs 1, and `height` from half way on. [height=0.5]",
        "echo Random ids from another seed. [offset=0]",
        "[times=1]",
        "[batch_size=2, context=null, dropout=false, split=true, paths=false]",  # gptlab's own probes have theirs
    ):
        assert line in words


@pytest.mark.parametrize("kind", sorted(registry.KINDS))
def test_a_name_that_gptlab_has_is_refused_in_every_kind(kind: str) -> None:
    def taker(*_: object) -> None: ...

    own = next(iter(registry.components(kind)))
    with refused("component-registered-twice", kind=kind, name=own, other=__name__):
        registry.register(kind, own)(taker)


def test_a_fact_that_the_kind_does_not_have_is_refused() -> None:
    with refused("unknown-name", key="register('data', 'mine')", value="tokenisers", suggestion="tokenizers"):
        registry.register("data", "mine", tokenisers=("ids",))(lambda: None)
