"""Counts and FLOPs against closed forms."""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import replace

import pytest
from torch import Tensor, nn

from gptlab.cli import main
from gptlab.config import Config, DataConfig, ModelConfig, ParametersProbe, ProbesConfig
from gptlab.model import skeleton
from gptlab.planning.costs import cost
from gptlab.probes import Subject, parameters
from gptlab.probes.parameters import count, group_sizes
from gptlab.probes.parameters import counted as counted_whole
from gptlab.registry import register

SMALL = ModelConfig(vocab_size=61, context_length=12, emb_dim=24, n_heads=3, n_layers=3)
GPT3_175B = ModelConfig(
    context_length=2048, emb_dim=12288, n_heads=96, n_layers=96, qkv_bias=True, tie_weights=True, init="gpt2"
)
VARIANTS = [
    {},
    {"qkv_bias": True},
    {"expansion": 2.5},
    {"n_layers": 0},
    {"n_heads": 1},
    {"norm": "rmsnorm"},
    {"norm_placement": "sandwich"},
    {"norm_placement": "none"},
    {"position": "none"},
    {"attention": "identity"},
    {"feed_forward": "identity"},
    {"attention": "identity", "feed_forward": "identity", "norm": "identity", "shortcut": "none"},
]


def counted(context: int | None = None, **changes: object) -> dict[str, float | int]:
    model = replace(SMALL, **changes)
    return count(Config(model=model, probes=ProbesConfig(parameters=ParametersProbe(context))))


def closed_form(m: ModelConfig) -> dict[str, int]:
    """Parameters by part, by hand."""
    d, width = m.emb_dim, int(m.expansion * m.emb_dim + 0.5)
    norm = {"layernorm": 2 * d, "rmsnorm": d, "identity": 0}[m.norm]
    return {
        "token_embedding": m.vocab_size * d,
        "position": m.context_length * d * (m.position == "learned"),
        "attention": m.n_layers * (4 * d * d + d + 3 * d * m.qkv_bias) * (m.attention == "multi_head"),
        "feed_forward": m.n_layers * (2 * d * width + width + d) * (m.feed_forward == "mlp"),
        "norm": m.n_layers * norm * {"pre": 2, "post": 2, "sandwich": 4, "none": 0}[m.norm_placement],
        "final_norm": norm * (m.norm_placement in ("pre", "sandwich")),
        "head": 0 if m.tie_weights else m.vocab_size * d,
    }


def matmul_weights(m: ModelConfig) -> int:
    """Weights that multiply each token: every matrix but the two tables; the head also where it is tied."""
    d, width = m.emb_dim, int(m.expansion * m.emb_dim + 0.5)
    branches = 4 * d * d * (m.attention == "multi_head") + 2 * d * width * (m.feed_forward == "mlp")
    return m.n_layers * branches + m.vocab_size * d


@pytest.mark.parametrize("tie", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_counts_by_part_are_the_closed_form_and_add_up(changes: dict[str, object], tie: bool) -> None:
    counts = counted(**changes, tie_weights=tie)
    parts = {k.removeprefix("parameters/"): v for k, v in counts.items() if k.startswith("parameters/")}
    expected = closed_form(replace(SMALL, **changes, tie_weights=tie))
    assert parts == {part: size for part, size in expected.items() if size}
    assert sum(parts.values()) == counts["parameters"]
    assert counts["mib"] == counts["parameters"] * 4 / 2**20


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_tied_and_untied_are_both_told_whatever_the_model_is(changes: dict[str, object]) -> None:
    untied, tied = counted(**changes), counted(**changes, tie_weights=True)
    assert untied["parameters"] - tied["parameters"] == 61 * 24
    for counts in (untied, tied):
        assert counts["parameters_untied"] == untied["parameters"]
        assert counts["parameters_tied"] == tied["parameters"]
    assert untied["flops_forward_per_token"] == tied["flops_forward_per_token"]


@pytest.mark.parametrize("context", [1, 5, 12])
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_flops_are_the_closed_form(changes: dict[str, object], context: int) -> None:
    m = replace(SMALL, **changes)
    scores = 4 * m.n_layers * context * m.emb_dim * (m.attention == "multi_head")  # Q K^T and the weighted sum
    counts = counted(context, **changes)
    assert counts["flops_forward_per_token"] == 2 * matmul_weights(m) + scores
    assert counts["flops_training_per_token"] == 3 * counts["flops_forward_per_token"]


@pytest.mark.parametrize("context", [1, 5, 12])
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_flops_by_part_are_the_closed_forms_and_add_up(changes: dict[str, object], context: int) -> None:
    m = replace(SMALL, **changes)
    config = Config(model=m, probes=ProbesConfig(parameters=ParametersProbe(context=context)))
    flops, found = counted_whole(config).flops, cost(config)
    assert flops is not None
    d, width = m.emb_dim, int(m.expansion * m.emb_dim + 0.5)
    block = {
        "attention": (8 * d * d + 4 * context * d) * (m.attention == "multi_head"),
        "feed_forward": 4 * d * width * (m.feed_forward == "mlp"),
    }
    block = {part: value for part, value in block.items() if value and m.n_layers}
    whole = {part: m.n_layers * value for part, value in block.items()} | {"head": 2 * m.vocab_size * d}
    assert (flops.first_block, flops.parts) == (block, whole)
    assert sum(found["flops_by_part"].values()) == found["flops_forward_per_token"]
    assert {part: value for part, value in found["flops_by_part"].items() if value} == whole
    assert {part: value for part, value in found["block_flops"].items() if value} == block
    assert found["flops_by_part"].keys() == {part for part in closed_form(m) if closed_form(m)[part]}  # 0 is said too


def test_flops_by_part_of_the_124m_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--parts", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["runs"][0]["cost"]
    assert found["block_flops"] == {"attention": 7_864_320, "feed_forward": 9_437_184, "norm": 0}
    assert found["flops_by_part"] == {
        "token_embedding": 0,
        "position": 0,
        "attention": 94_371_840,
        "feed_forward": 113_246_208,
        "norm": 0,
        "final_norm": 0,
        "head": 77_194_752,
    }
    assert main(["plan", "--parts"]) == 0
    out = capsys.readouterr().out
    assert all(f"{number:,}" in out for number in (7_864_320, 9_437_184, 94_371_840, 113_246_208, 77_194_752))


def test_flops_of_a_window_are_fractions_that_add_up() -> None:
    config = Config(model=replace(SMALL, options={"attention": {"window": 5}}))
    flops, found = counted_whole(config).flops, cost(config)
    assert flops is not None and sum(flops.parts.values()) == pytest.approx(flops.forward, rel=1e-12)
    assert round(sum(found["flops_by_part"].values())) == found["flops_forward_per_token"]


@pytest.mark.usefixtures("scratch_registry")
def test_a_part_that_counts_itself_is_counted_as_often_as_it_is_called() -> None:
    @register("feed_forward", "test_twice_counted")
    class Twice(nn.Module):
        """One inner part, used twice; it counts itself, and so does what it holds, which is not asked."""

        def __init__(self, emb_dim: int) -> None:
            super().__init__()
            self.inner = Says(emb_dim)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(self.inner(x))

    class Says(nn.Linear):
        def __init__(self, emb_dim: int) -> None:
            super().__init__(emb_dim, emb_dim)
            self.deeper = nn.Identity()
            self.deeper.flops = lambda tokens: 10**9  # type: ignore[assignment]

        def flops(self, tokens: int) -> int:
            return 7 * tokens

    flops = counted_whole(Config(model=replace(SMALL, feed_forward="test_twice_counted"))).flops
    assert flops is not None and flops.first_block["feed_forward"] == 14
    assert flops.parts["feed_forward"] == 14 * SMALL.n_layers


@pytest.mark.parametrize("changes", [{"causal": False}, {"activation": "relu"}, {"qkv_bias": True}], ids=str)
def test_what_is_no_matrix_product_costs_no_flops(changes: dict[str, object]) -> None:
    assert counted(**changes)["flops_forward_per_token"] == counted()["flops_forward_per_token"]


def test_without_a_context_the_whole_one_is_meant() -> None:
    assert counted(None) == counted(12)
    assert count(Config(model=SMALL, probes=ProbesConfig(parameters=None))) == counted(12)


def test_the_124m_model_costs_what_the_formula_says() -> None:
    counts = count(Config())
    assert counts["flops_forward_per_token"] == 2 * (12 * 12 * 768**2 + 50257 * 768) + 4 * 12 * 1024 * 768


@pytest.mark.usefixtures("scratch_registry")
def test_blocks_that_differ_by_layer_are_each_counted() -> None:
    @register("feed_forward", "test_wider_with_depth")
    class WiderWithDepth(nn.Linear):
        """Layer i multiplies by a matrix of (i + 1) * emb_dim columns."""

        def __init__(self, emb_dim: int, layer: int) -> None:
            super().__init__(emb_dim, (layer + 1) * emb_dim)

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)[..., : x.shape[-1]]

    less = counted(feed_forward="identity")["flops_forward_per_token"]
    more = counted(feed_forward="test_wider_with_depth")["flops_forward_per_token"]
    assert more - less == 2 * 24 * 24 * (1 + 2 + 3)


@pytest.mark.parametrize("shortcut", ["add", "none"])
def test_deep_mlp(shortcut: str) -> None:
    model = ModelConfig(architecture="deep_mlp", layer_sizes=[3, 4, 4, 1], shortcut=shortcut)
    data = DataConfig(source="vectors", inputs=[[1.0, 0.0, -1.0]], targets=[[0.0]])
    counts = count(Config(model=model, data=data))
    weights, biases = 3 * 4 + 4 * 4 + 4 * 1, 4 + 4 + 1
    assert counts["parameters"] == weights + biases
    assert (counts["parameters/weight"], counts["parameters/bias"]) == (weights, biases)
    assert "parameters_tied" not in counts  # there is no head to tie
    assert counts["flops_forward_per_token"] == 2 * weights


def test_group_sizes_follow_a_built_model_too() -> None:
    assert group_sizes(skeleton(SMALL)) == {k: v for k, v in closed_form(SMALL).items() if v}


def test_175_billion_take_no_memory() -> None:
    count(Config(model=SMALL))  # what torch loads lazily is not the model's
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    measured = parameters.measure(Subject(Config(model=GPT3_175B)))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (1 if sys.platform == "darwin" else 1024)
    assert measured.metrics["parameters"] == 174_604_259_328
    assert measured.metrics["parameters_untied"] == 174_604_259_328 + 50257 * 12288
    assert grown < 200 * 2**20
