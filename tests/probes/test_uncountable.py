"""Parts that count themselves, and parts that nobody can count before they run: a missing number, never a stop."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gptlab
from gptlab.cli import main
from gptlab.config import Config, ModelConfig
from gptlab.model.layers import Linear
from gptlab.planning.costs import cost
from gptlab.probes.parameters import block_sizes, count, counted
from gptlab.registry import register
from tests.support.refusals import refused_command

SMALL = ModelConfig(vocab_size=61, context_length=12, emb_dim=24, n_heads=3, n_layers=3)
TINY = ["model=tiny", "data=random_tokens", "model.n_layers=2"]
pytestmark = pytest.mark.usefixtures("scratch_registry")


@pytest.fixture
def moe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """feed_forward=test_top1: each token goes to the expert with the largest score, found by nonzero."""

    @register("feed_forward", "test_top1")
    class Top1(nn.Module):
        """One of `experts` linear maps for each token."""

        def __init__(self, emb_dim: int, experts: int = 3) -> None:
            super().__init__()
            self.router = Linear(emb_dim, experts, bias=False)
            self.experts = nn.ModuleList(Linear(emb_dim, emb_dim, into_stream=True) for _ in range(experts))

        def forward(self, x: Tensor) -> Tensor:
            tokens = x.flatten(0, -2)
            best, expert = self.router(tokens).softmax(-1).max(-1)
            y = torch.zeros_like(tokens)
            for number, module in enumerate(self.experts):
                (mine,) = (expert == number).nonzero(as_tuple=True)
                y = y.index_add(0, mine, module(tokens[mine]) * best[mine, None])
            return y.view_as(x)

    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- what cannot be counted


def test_its_parameters_are_counted_and_its_flops_are_missing_with_the_reason(moe: Path) -> None:
    counts = counted(gptlab.compose([*TINY, "model.feed_forward=test_top1"]))
    d = 32
    assert counts.numbers["parameters/feed_forward"] == 2 * (3 * d + 3 * (d * d + d))
    assert not any(name.startswith("flops") for name in counts.numbers)
    assert set(counts.missing) == {f"flops_{what}_per_token" for what in ("forward", "visible", "training")}
    (why,) = set(counts.missing.values())
    assert "trf_blocks.0.ff (Top1)" in why and "nonzero" in why


def test_plan_shows_a_dash_and_why(moe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", *TINY, "model.feed_forward=mlp,test_top1", "train.budget=3"]
    assert main(words) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "feed_forward=test_top1: flops_forward_per_token," in out and "-, because trf_blocks.0.ff (Top1) uses" in out
    assert main([*words, "--format", "json"]) == 0
    plain, other = (run["cost"] for run in json.loads(capsys.readouterr().out)["runs"])
    assert plain["missing"] == {} and plain["training_flops"] > 0
    for name in ("flops_forward_per_token", "peak_mib", "training_flops"):
        assert other[name] is None and "nonzero" in other["missing"][name]


def test_it_is_measured_and_trained(moe: Path) -> None:
    words = [*TINY, "model.feed_forward=test_top1", "train.budget=3", "train.batch_size=2", "probes.generation=null"]
    run = gptlab.run(gptlab.compose(words), moe / "run")
    assert run.result["state"] == "finished", run.result["error"]
    assert run.metrics["final_loss"] > 0 and "training_flops" not in run.metrics
    notes = " ".join(run.result["notes"])
    assert "shapes: no trace" in notes and "training_flops: not counted" in notes and "nonzero" in notes
    lines = [json.loads(line) for line in (moe / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["flops"] for line in lines] == [0.0, None]
    assert gptlab.load is not None and (moe / "run" / "training.json").exists()


def test_a_budget_in_flops_needs_them(moe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*TINY, "model.feed_forward=test_top1", "train.budget=1e9", "train.budget_unit=flops"]
    refused_command(capsys, "plan", *words, code="flops-uncountable", key="train.budget_unit", value="flops")


# --- what counts itself


def test_a_part_says_its_own_flops_and_is_not_run_for_it() -> None:
    @register("feed_forward", "test_counted")
    class Counted(nn.Module):
        """Needs values, and says what it costs."""

        def __init__(self, emb_dim: int) -> None:
            super().__init__()
            self.inner = Linear(emb_dim, emb_dim)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) * float(x.sum())

        def flops(self, tokens: int) -> int:
            return 1000 * tokens

    without = count(Config(model=replace(SMALL, feed_forward="identity")))["flops_forward_per_token"]
    assert count(Config(model=replace(SMALL, feed_forward="test_counted")))["flops_forward_per_token"] == without + 3000


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 3, 5, 12, 40])
@pytest.mark.parametrize("context", [1, 4, 12])
def test_flops_know_the_window_and_the_mask(window: int | None, causal: bool, context: int) -> None:
    options = {"attention": {"window": window}} if window else {}
    config = Config(model=replace(SMALL, causal=causal, options=options))
    assert config.probes.parameters
    config.probes.parameters.context = context
    counts = count(config)
    rest = count(Config(model=replace(SMALL, context_length=12, attention="identity")))["flops_forward_per_token"]
    products = 3 * 2 * 4 * 24 * 24  # queries, keys, values, projection
    at = torch.arange(context)
    behind = at[:, None] - at
    allowed = (behind >= 0) if causal else torch.ones_like(behind, dtype=torch.bool)
    within = behind.abs() < (window or context)
    pair = 3 * 4 * 24  # in three blocks: a multiply-add for the logit and one for the sum, in 24 dimensions
    visible = rest + products + pair * int((allowed & within).sum()) / context
    assert counts["flops_visible_per_token"] == round(visible)
    reach = min(context, window or context) if causal else min(context, 2 * (window or context) - 1)
    assert counts["flops_forward_per_token"] == rest + products + pair * reach


def test_a_block_of_124m() -> None:
    sizes = block_sizes(ModelConfig())
    assert (sizes["attention"], sizes["feed_forward"]) == (2_360_064, 4_722_432)
    assert sizes == {"attention": 2_360_064, "feed_forward": 4_722_432, "norm": 2 * 2 * 768}


def test_parts_in_the_plan_are_exact(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--parts"]) == 0
    out = capsys.readouterr().out
    assert "2,360,064" in out and "4,722,432" in out and "28,320,768" in out
    assert cost(gptlab.compose([]))["block"]["feed_forward"] == 4_722_432
