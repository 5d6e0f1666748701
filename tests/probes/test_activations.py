"""Probe `activations`: closed forms at initialisation, and that looking changes nothing."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gptlab
from gptlab import probes
from gptlab.config import Config, ModelConfig, ProbesConfig
from gptlab.metrics import metric
from gptlab.model import build
from gptlab.probes import activations, gradients
from gptlab.probes.activations import dead, effective_rank, mean_cosine, observe, of_logits
from gptlab.probes.subject import Subject
from gptlab.registry import register
from gptlab.running.execute import execute
from tests.support.refusals import refused

SMALL = ModelConfig(vocab_size=61, context_length=16, emb_dim=32, n_heads=4, n_layers=3)
IDS = torch.randint(61, (2, 16), generator=torch.Generator().manual_seed(0))
Rows = dict[tuple[int | None, str, str], float]


def see(ids: torch.Tensor = IDS, model: nn.Module | None = None, **changes: Any) -> Rows:
    config = replace(SMALL, **changes)
    rows, _ = observe(model or build(Config(model=config, seed=3)), config, ids)
    return {(row["layer"], row["part"], row["metric"]): row["value"] for row in rows}


def test_every_layer_has_its_rows() -> None:
    found = see()
    for layer in range(3):
        assert (layer, "all", "stream_rms") in found
        for part in ("attention", "feed_forward"):
            for name in ("branch_rms", "branch_ratio", "stream_rms"):
                assert found[layer, part, name] > 0
        assert found[layer, "all", "stream_rms"] == found[layer, "feed_forward", "stream_rms"]
    assert all(metric(name) for _, _, name in found)


def test_post_norm_keeps_the_stream_at_one_and_pre_norm_grows() -> None:
    post, pre = see(norm_placement="post"), see()
    assert [post[i, "all", "stream_rms"] for i in range(3)] == pytest.approx([1.0] * 3, abs=1e-3)
    sizes = [pre[None, "embeddings", "stream_rms"], *(pre[i, "all", "stream_rms"] for i in range(3))]
    assert sizes == sorted(sizes)


def test_the_stream_is_the_one_that_the_model_computes() -> None:
    model = build(Config(model=SMALL, seed=3))
    found = see(model=model)
    with torch.no_grad():
        x = model.tok_emb(IDS) + model.pos_emb.weight[:16]
        after = model.trf_blocks[0](x)
        branch = model.trf_blocks[0].att(model.trf_blocks[0].norm1(x))
    rms = lambda t: t.square().mean().sqrt().item()  # noqa: E731
    assert found[None, "embeddings", "stream_rms"] == pytest.approx(rms(x))
    assert found[0, "all", "stream_rms"] == pytest.approx(rms(after))
    assert found[0, "attention", "branch_ratio"] == pytest.approx(rms(branch) / rms(x), rel=1e-4)


@pytest.mark.parametrize(
    ("shortcut", "ratio"), [("add", 1.0), ("none", 1.0), ("scaled", 0.5), ("rezero", 0.0)]
)  # of what the branch puts out, to what it adds
def test_the_ratio_is_of_what_a_branch_adds(shortcut: str, ratio: float) -> None:
    plain = see(norm_placement="none")
    found = see(norm_placement="none", shortcut=shortcut)
    first = (0, "attention", "branch_ratio")
    assert found[first] == pytest.approx(ratio * plain[first], rel=1e-4)
    assert found[0, "attention", "branch_rms"] == pytest.approx(plain[0, "attention", "branch_rms"])


def test_attention_entropy_of_equal_logits_is_that_of_the_uniform_distribution() -> None:
    model = build(Config(model=SMALL))
    for block in model.trf_blocks:
        nn.init.zeros_(block.att.W_query.weight)
    found = see(model=model)
    for layer in range(3):
        assert found[layer, "attention", "attention_entropy"] == pytest.approx(math.lgamma(17) / 16, rel=1e-5)
        assert found[layer, "attention", "attention_logit_max"] == 0.0
    unmasked = see(model=build(Config(model=replace(SMALL, causal=False, init="gpt2"))))
    assert unmasked[0, "attention", "attention_entropy"] == pytest.approx(math.log(16), abs=1e-3)


def test_a_logit_cap_and_a_norm_bound_the_largest_logit() -> None:
    capped = see(options={"attention": {"softcap": 0.125}})
    assert 0 < capped[0, "attention", "attention_logit_max"] <= 0.125
    normed = see(options={"attention": {"qk_norm": "rms"}})
    assert 0 < normed[0, "attention", "attention_logit_max"] <= math.sqrt(8) * 1.0001


@pytest.mark.parametrize("changes", [{"attention": "identity"}, {"layout": "feed_forward_only"}], ids=str)
def test_no_attention_no_rows_of_it(changes: dict[str, Any]) -> None:
    assert not any(name.startswith("attention_") for _, _, name in see(**changes))


def test_dead_units_are_those_without_any_slope() -> None:
    relu, x = nn.ReLU(), torch.tensor([[1.0, -1.0, -2.0, 3.0], [1.0, 2.0, -1.0, -1.0]])
    assert dead(relu, x) == {"dead_fraction": 0.25, "zero_gradient_fraction": 0.5}
    assert dead(nn.GELU(), x) == {"dead_fraction": 0.0, "zero_gradient_fraction": 0.0}
    assert dead(nn.GELU(), x - 100)["dead_fraction"] == 1.0


@pytest.mark.parametrize(("kind", "low", "high"), [("relu", 0.4, 0.6), ("gelu_tanh", 0.0, 0.0), ("relu2", 0.4, 0.6)])
def test_half_of_relu_is_off_at_the_start(kind: str, low: float, high: float) -> None:
    found = see(activation=kind)
    assert low <= found[0, "feed_forward", "zero_gradient_fraction"] <= high
    assert found[0, "feed_forward", "dead_fraction"] < 0.05


def test_a_gate_counts_as_an_activation() -> None:
    assert 0.4 <= see(feed_forward="reglu")[1, "feed_forward", "zero_gradient_fraction"] <= 0.6


def test_each_layer_has_its_own_activation() -> None:
    found = see(layers={"1": {"activation": "relu"}})
    assert [found[i, "feed_forward", "zero_gradient_fraction"] > 0.4 for i in range(3)] == [False, True, False]


def test_effective_rank_and_cosine_by_hand() -> None:
    assert effective_rank(torch.eye(5)) == pytest.approx(5.0)
    assert effective_rank(torch.ones(4, 3)) == pytest.approx(1.0, abs=1e-4)
    assert effective_rank(torch.zeros(4, 3)) == 0.0
    assert mean_cosine(torch.eye(3)) == pytest.approx(0.0)
    assert mean_cosine(torch.tensor([[1.0, 0.0], [2.0, 0.0], [-3.0, 0.0]])) == pytest.approx(-1 / 3)


def test_without_shortcuts_a_deep_stack_collapses_to_one_direction() -> None:
    kept, collapsed = see(n_layers=8), see(n_layers=8, shortcut="none")
    assert collapsed[7, "all", "token_cosine"] > 0.9 > kept[7, "all", "token_cosine"]
    assert 4 * collapsed[7, "all", "effective_rank"] < kept[7, "all", "effective_rank"]


def test_logits_by_their_formulas() -> None:
    logits = torch.tensor([[[1.0, -1.0, 1.0, -1.0], [3.0, -3.0, 3.0, -3.0]]])
    found = of_logits(logits)
    assert found["logit_std"] == pytest.approx(math.sqrt(5.0))
    assert found["log_z"] == pytest.approx(logits.exp().sum(-1).log().mean().item())


def test_logit_spread_of_a_default_head_is_one_over_root_three() -> None:
    config = replace(SMALL, emb_dim=256, vocab_size=997)
    logits = build(Config(model=config))(IDS)
    assert of_logits(logits)["logit_std"] == pytest.approx(1 / math.sqrt(3), rel=0.05)


def test_deep_mlp_has_its_layers() -> None:
    subject = Subject(gptlab.compose(["model=deep_mlp"]))
    rows = activations.measure(subject).tables["layers"]
    assert {row["layer"] for row in rows if row["metric"] == "stream_rms"} == {None, 0, 1, 2, 3, 4}
    assert {row["layer"] for row in rows if row["metric"] == "branch_ratio"} == {0, 1, 2, 3}


ALL = ["model=tiny", "probes.gradients.paths=true", "model.n_layers=2"]


@pytest.mark.parametrize(
    "overrides", [ALL, [*ALL, "probes.gradients.dropout=true"], ["model=deep_mlp", "probes.gradients.paths=true"]]
)
def test_looking_changes_nothing(overrides: list[str]) -> None:
    subject = Subject(gptlab.compose(overrides))
    model, twin = subject.model, build(subject.config)
    grads = [torch.full_like(p, 0.5) for p in model.parameters()]
    for parameter, gradient in zip(model.parameters(), grads, strict=True):
        parameter.grad = gradient  # a training step may be under way
    model.train()
    rng = torch.get_rng_state()
    for probe in probes.chosen(subject.config):
        if probe.name != "generation":
            probes.measure(probe, subject)
    assert torch.equal(rng, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), twin.buffers(), strict=True))
    assert all(p.grad is g and bool((g == 0.5).all()) for p, g in zip(model.parameters(), grads, strict=True))
    assert all(m.training for m in model.modules())
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    assert not any(getattr(m, hook) for m in model.modules() for hook in hooks)


@pytest.mark.usefixtures("scratch_registry")
def test_a_component_with_a_memory_gets_it_back() -> None:
    @register("norm", "test_counting")
    class Counting(nn.Module):
        def __init__(self, dim: int) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x

    model = build(Config(model=replace(SMALL, norm="test_counting")))
    observe(model, replace(SMALL, norm="test_counting"), IDS)
    assert not any(buffer.any() for buffer in model.buffers())


def test_both_probes_write_into_one_table(tmp_path: Path) -> None:
    config = gptlab.compose(["model=tiny", "probes.gradients.paths=true"])
    result = execute(config, tmp_path)
    assert result["state"] == "finished", result["error"]
    with (tmp_path / "layers.csv").open() as file:
        names = {row["metric"].split("/")[0] for row in csv.DictReader(file)}
    assert {"grad_norm", "grad_split_cosine", "path_share", "stream_rms", "effective_rank"} <= names
    assert result["metrics"]["logit_std"] > 0 and set(result["metrics"]) >= {"log_z", "loss"}
    assert list(result["artifacts"]).count("layers.csv") == 1


def test_the_numbers_of_one_probe_do_not_depend_on_the_others() -> None:
    both = gptlab.compose(["model=tiny", "probes.gradients.paths=true"])
    alone = replace(both, probes=ProbesConfig(None, None, both.probes.gradients, None, None))
    first = Subject(both)
    activations.measure(first)
    assert gradients.measure(first) == gradients.measure(Subject(alone))


@pytest.mark.parametrize(
    ("words", "passes"),
    [
        ([], 1),
        (["ablation=post_ln", "probes.gradients.split=false"], 1),
        (["probes.activations.context=8"], 2),
        (["probes.activations.batch_size=1"], 2),
        (["probes.gradients.dropout=true"], 3),  # the split is of a pass of its own
        (["probes.gradients.dropout=true", "probes.gradients.split=false"], 2),
    ],
)
def test_probes_of_the_same_batch_share_one_pass(words: list[str], passes: int) -> None:
    subject = Subject(gptlab.compose(["model=tiny", "model.drop_rate=0.1", *words]))
    calls: list[int] = []
    subject.model.register_forward_hook(lambda *_: calls.append(1))
    gradients.measure(subject)
    found = activations.measure(subject)
    assert len(calls) == passes
    alone = activations.measure(Subject(subject.config))
    assert found.metrics == pytest.approx(alone.metrics, rel=1e-6)
    rows, expected = found.tables["layers"], alone.tables["layers"]
    assert [row | {"value": None} for row in rows] == [row | {"value": None} for row in expected]
    assert [row["value"] for row in rows] == pytest.approx([row["value"] for row in expected], rel=1e-5)


def test_what_was_seen_along_is_of_one_look_only() -> None:
    subject = Subject(gptlab.compose(["model=tiny"]))
    gradients.measure(subject)
    before = activations.measure(subject)
    with torch.no_grad():
        subject.model.out_head.weight.mul_(2)  # type: ignore[union-attr]
    assert activations.measure(subject).metrics["logit_std"] == pytest.approx(2 * before.metrics["logit_std"])


def test_mistakes() -> None:
    with refused("probe-context", key="probes.activations.context", value=65, limit=64):
        gptlab.compose(["model=tiny", "probes.activations.context=65"])
    with refused("model-key-ignored", key="probes.activations.batch_size"):
        gptlab.compose(["model=deep_mlp", "probes.activations.batch_size=3"])
