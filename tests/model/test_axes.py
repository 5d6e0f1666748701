"""The wider field of choices, each against a closed form, torch's own, or its defining property."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlab.config import Config, ModelConfig
from gptlab.model import GPT, build, learning_rate_scales, skeleton
from gptlab.model.activations import relu2
from gptlab.model.attention import MultiHeadAttention
from gptlab.model.feed_forward import Gated
from gptlab.model.norms import DynamicTanh, LayerNorm, RMSNorm, ScaleNorm
from gptlab.model.positions import ALiBi, RotaryPosition, alibi_slopes
from tests.support.refusals import refused

SMALL = ModelConfig(vocab_size=61, context_length=16, emb_dim=24, n_heads=6, n_layers=3)


def randn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def attention(**options: object) -> MultiHeadAttention:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MultiHeadAttention(24, 6, **options).double().eval()


def make(**changes: object) -> GPT:
    model = build(Config(model=replace(SMALL, **changes)))
    assert isinstance(model, GPT)
    return model


def count(**changes: object) -> int:
    return sum(p.numel() for p in skeleton(replace(ModelConfig(), **changes)).parameters())


# --- norms


def test_scalenorm_is_rmsnorm_with_one_gain() -> None:
    x = randn(3, 5, 24)
    torch.testing.assert_close(ScaleNorm(24).double()(x), RMSNorm(24, eps=0.0).double()(x))


def test_dyt_by_its_formula() -> None:
    norm = DynamicTanh(24).double()
    nn.init.uniform_(norm.scale, generator=torch.Generator().manual_seed(0))
    x = randn(3, 5, 24) * 4
    assert torch.equal(norm(x), norm.scale * torch.tanh(0.5 * x) + norm.shift)


@pytest.mark.parametrize(
    ("norm", "parameters"),
    [
        (LayerNorm(24), 48), (LayerNorm(24, bias=False), 24), (LayerNorm(24, affine=False), 0), (RMSNorm(24), 24),
        (RMSNorm(24, affine=False), 0), (ScaleNorm(24), 1), (DynamicTanh(24), 49),
    ],
)  # fmt: skip
def test_parameters_of_norms(norm: nn.Module, parameters: int) -> None:
    assert sum(p.numel() for p in norm.parameters()) == parameters


def test_gradient_through_layernorm_is_orthogonal_to_input_and_ones() -> None:
    x = randn(1, 24).requires_grad_()
    (LayerNorm(24, eps=0.0).double()(x) * randn(1, 24, seed=2)).sum().backward()
    assert abs((x.grad * x).sum().item()) < 1e-12
    assert abs(x.grad.sum().item()) < 1e-12


# --- feed-forward


def test_relu2_by_its_formula() -> None:
    x = torch.linspace(-2, 2, 9)
    assert torch.equal(relu2()(x), x.clamp(min=0) ** 2)


@pytest.mark.parametrize(
    ("name", "gate"),
    [
        ("glu", torch.sigmoid),
        ("geglu", F.gelu),
        ("swiglu", F.silu),
        ("reglu", F.relu),
        ("bilinear", lambda x: x),
        ("geglu_tanh", lambda x: F.gelu(x, approximate="tanh")),
        ("relu2_glu", lambda x: F.relu(x) ** 2),
    ],
)
def test_gated_layers_by_their_formula(name: str, gate: object) -> None:
    ff = make(feed_forward=name, expansion=8 / 3).trf_blocks[0].ff.double()
    assert isinstance(ff, Gated)
    x = randn(2, 5, 24)
    torch.testing.assert_close(ff(x), ff.out(gate(ff.gate(x)) * ff.value(x)))


def test_a_gate_of_ones_is_a_plain_layer() -> None:
    ff = make(feed_forward="bilinear", expansion=2.0).trf_blocks[0].ff.double()
    with torch.no_grad():
        ff.gate.weight.zero_()
        ff.gate.bias.fill_(1.0)
    x = randn(2, 5, 24)
    torch.testing.assert_close(ff(x), ff.out(ff.value(x)))


def test_gated_parity_width() -> None:
    without_bias = {"feed_forward_bias": False, "attention_bias": False}
    assert count(feed_forward="swiglu", expansion=8 / 3, **without_bias) == count(**without_bias)


# --- attention


ATTENTION_OPTIONS = [
    {}, {"causal": False}, {"window": 3}, {"window": 3, "causal": False}, {"n_kv_heads": 2}, {"n_kv_heads": 1},
    {"scale": "inverse"}, {"scale": "learned"}, {"qk_norm": "rms"}, {"qk_norm": "rms_full"}, {"qk_norm": "l2"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "position"),
    [
        (options, position)
        for options in ATTENTION_OPTIONS
        for position in (None, RotaryPosition(16, 24, 6), ALiBi(6))
        if options.get("causal", True) or not isinstance(position, ALiBi)
    ],
    ids=str,
)
def test_manual_and_sdpa_agree(options: dict[str, object], position: nn.Module | None) -> None:
    x = randn(2, 9, 24)
    both = [attention(implementation=way, position=position, **options)(x) for way in ("manual", "sdpa")]
    torch.testing.assert_close(*both, rtol=0, atol=1e-12)


def test_grouped_queries_are_repeated_heads() -> None:
    grouped, full = attention(n_kv_heads=2), attention()
    with torch.no_grad():
        for name in ("W_query", "out_proj"):
            getattr(full, name).load_state_dict(getattr(grouped, name).state_dict())
        for name in ("W_key", "W_value"):
            heads = getattr(grouped, name).weight.view(2, 4, 24)
            getattr(full, name).weight.copy_(heads.repeat_interleave(3, dim=0).reshape(24, 24))
    x = randn(2, 9, 24)
    torch.testing.assert_close(grouped(x), full(x), rtol=0, atol=1e-12)


def test_grouped_query_count() -> None:
    block = skeleton(ModelConfig(n_kv_heads=4)).trf_blocks[0]
    assert sum(p.numel() for p in block.att.parameters()) == 1_573_632


def test_window_hides_what_is_further_back() -> None:
    layer = attention(window=3)
    x = randn(1, 9, 24)
    changed = x.clone()
    changed[0, 2] += 1
    moved = (layer(x) != layer(changed)).any(-1)[0]
    assert moved.tolist() == [False, False, True, True, True, False, False, False, False]


def test_softcap_bounds_logits_and_a_large_one_changes_nothing() -> None:
    x = 30 * randn(1, 9, 24)
    capped = attention(softcap=2.0)
    logits = capped.logits(*capped.queries_keys_values(x)[:2])
    assert logits[logits > -torch.inf].abs().max() <= 2.0
    torch.testing.assert_close(attention(softcap=1e9)(x), attention()(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("qk_norm", ["rms", "l2"])
def test_qk_norm_bounds_logits(qk_norm: str) -> None:
    layer = attention(qk_norm=qk_norm, implementation="manual")
    logits = layer.logits(*layer.queries_keys_values(100 * randn(1, 9, 24))[:2])
    assert logits[logits > -torch.inf].abs().max() <= math.sqrt(4) + 1e-4  # head_dim 4; float eps inside the norm


def test_the_key_bias_is_inert_without_rope_and_live_with_it() -> None:
    for position, live in ((None, False), (RotaryPosition(16, 24, 6), True)):
        layer = attention(qkv_bias=True, position=position)
        (layer(randn(1, 9, 24)) * randn(1, 9, 24, seed=2)).sum().backward()
        assert (layer.W_key.bias.grad.abs().max().item() > 1e-6) is live
        assert layer.W_query.bias.grad.abs().max() > 1e-6


def test_entropy_of_untrained_causal_attention_is_nearly_uniform() -> None:
    T = 64
    model = build(
        Config(model=ModelConfig(vocab_size=512, context_length=T, emb_dim=256, n_heads=4, n_layers=1, init="gpt2"))
    )
    layer = model.trf_blocks[0].att
    x = torch.randn(4, T, 256, generator=torch.Generator().manual_seed(0))
    weights = layer.logits(*layer.queries_keys_values(x)[:2]).softmax(-1)
    entropy = torch.special.entr(weights).sum(-1).mean().item()
    assert entropy == pytest.approx(math.lgamma(T + 1) / T, abs=0.01)


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        ({"n_kv_heads": 4}, "attention-kv-heads-divide", {"key": "model.n_kv_heads", "value": 4, "n_heads": 6}),
        ({"window": 0}, "attention-window", {"key": "model.options.attention.window", "value": 0}),
        ({"softcap": 0.0}, "softcap-not-positive", {"key": "model.options.attention.softcap", "value": 0.0}),
        (
            {"qk_norm": "rsm"},
            "unknown-name",
            {"key": "model.options.attention.qk_norm", "value": "rsm", "suggestion": "rms"},
        ),
        (
            {"scale": "inverse_sqr"},
            "unknown-name",
            {"key": "model.options.attention.scale", "value": "inverse_sqr", "suggestion": "inverse_sqrt"},
        ),
        ({"implementation": "x"}, "unknown-name", {"value": "x", "allowed": ["auto", "manual", "sdpa"]}),
        (
            {"softcap": 1.0, "implementation": "sdpa"},
            "softcap-with-sdpa",
            {"key": "model.options.attention.softcap", "value": 1.0},
        ),
        (
            {"qk_norm": "l2", "scale": "inverse"},
            "scale-with-l2",
            {"key": "model.options.attention.scale", "value": "inverse"},
        ),
    ],
    ids=str,
)
def test_attention_refuses(options: dict[str, object], code: str, facts: dict[str, Any]) -> None:
    with refused(code, **facts):
        attention(**options)


# --- positions


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_rope_keeps_norms_and_sees_only_distances(pairing: str) -> None:
    rope = RotaryPosition(64, 24, 3, pairing=pairing).double()
    q, k = randn(1, 1, 1, 8), randn(1, 1, 1, 8, seed=2)
    turned_q, turned_k = (t[0, 0] for t in rope.rotate(q.expand(1, 1, 64, 8), k.expand(1, 1, 64, 8), torch.arange(64)))
    torch.testing.assert_close(turned_q.norm(dim=-1), q.norm().expand(64), rtol=0, atol=1e-6)
    logits = turned_q @ turned_k.T
    torch.testing.assert_close(logits[5, 2], logits[45, 42], rtol=0, atol=1e-5)
    assert (logits[5, 2] - logits[5, 3]).abs() > 1e-3


def test_rope_pairings_are_permutations_of_each_other() -> None:
    half, interleaved = RotaryPosition(16, 24, 3), RotaryPosition(16, 24, 3, pairing="interleaved")
    x = randn(1, 3, 16, 8).float()
    order = torch.arange(8).view(2, 4).T.flatten()  # 0 4 1 5 2 6 3 7
    at = torch.arange(16)
    torch.testing.assert_close(half.rotate(x, x, at)[0][..., order], interleaved.rotate(x[..., order], x, at)[0])


def test_alibi_slopes_and_bias() -> None:
    assert alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    twelve = alibi_slopes(12)
    assert twelve[8:] == pytest.approx([0.7071, 0.3536, 0.1768, 0.0884], abs=1e-4)
    bias = ALiBi(8).bias(torch.arange(5), torch.arange(5))
    assert bias.shape == (8, 5, 5)
    assert bias[0, 4].tolist() == [-2.0, -1.5, -1.0, -0.5, 0.0]


def test_without_positions_one_layer_cannot_tell_the_order_of_the_past_and_two_can() -> None:
    order = torch.tensor([3, 1, 4, 0, 2, 5])
    for n_layers, blind in ((1, True), (2, False)):
        model = make(position="none", n_layers=n_layers).double()
        ids = torch.tensor([[7, 8, 9, 10, 11, 12]])
        gap = (model(ids)[0, -1] - model(ids[:, order])[0, -1]).abs().max().item()
        assert (gap < 1e-10) is blind


@pytest.mark.parametrize("position", ["rope", "alibi", "sinusoidal", "none"])
def test_fixed_positions_have_no_parameters(position: str) -> None:
    model = make(position=position)
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in make().parameters()) - 16 * 24
    assert not any("pos" in name for name in model.state_dict())


def test_position_refusals() -> None:
    with refused("rope-odd-head", key="model.position", value="rope", head_dim=3):
        RotaryPosition(16, 24, 8)
    with refused("alibi-not-causal", key="model.position", value="alibi"):
        ALiBi(6, causal=False)
    with refused("unknown-name", key="model.options.position.pairing", value="hlaf", suggestion="half"):
        RotaryPosition(16, 24, 3, pairing="hlaf")


# --- blocks


def test_layouts_by_their_formulas() -> None:
    x = randn(2, 5, 24)
    b = make(layout="parallel").trf_blocks[0].double()
    torch.testing.assert_close(b(x), x + b.att(b.norm1(x)) + b.ff(b.norm1(x)))
    b = make(layout="parallel", norm_placement="post").trf_blocks[0].double()
    torch.testing.assert_close(b(x), b.norm1(x + b.att(x) + b.ff(x)))
    b = make(layout="parallel_two_norms").trf_blocks[0].double()
    torch.nn.init.uniform_(b.norm2.scale, 0.5, 1.5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(b(x), x + b.att(b.norm1(x)) + b.ff(b.norm2(x)))
    assert [branch.beside for branch in b.branches(0)] == [False, True]
    b = make(layout="attention_only").trf_blocks[0].double()
    torch.testing.assert_close(b(x), x + b.att(b.norm1(x)))
    b = make(layout="feed_forward_only").trf_blocks[0].double()
    torch.testing.assert_close(b(x), x + b.ff(b.norm2(x)))


def test_one_norm_for_both_saves_2d_a_layer() -> None:
    assert count() - count(layout="parallel") == 12 * 2 * 768


@pytest.mark.parametrize("silent", ["att", "ff"])
def test_parallel_and_serial_agree_when_a_branch_is_silent(silent: str) -> None:
    outputs = []
    for layout in ("serial", "parallel"):
        block = make(layout=layout).trf_blocks[0].double()
        for parameter in getattr(block, silent).parameters():
            nn.init.zeros_(parameter)
        outputs.append(block(randn(2, 5, 24)))
    torch.testing.assert_close(*outputs)


def test_more_placements_by_their_formulas() -> None:
    x = randn(2, 5, 24)
    b = make(norm_placement="out").trf_blocks[0].double()
    y = x + b.norm1_output(b.att(x))
    torch.testing.assert_close(b(x), y + b.norm2_output(b.ff(y)))
    b = make(norm_placement="lns").trf_blocks[2].double()
    y = x + b.att(b.norm1(x) / math.sqrt(3))
    torch.testing.assert_close(b(x), y + b.ff(b.norm2(y) / math.sqrt(3)))
    b = make(norm_placement="deepnorm").trf_blocks[1].double()
    y = b.norm1(6**0.25 * x + b.att(x))
    torch.testing.assert_close(b(x), b.norm2(6**0.25 * y + b.ff(y)))
    peri, sandwich = make(norm_placement="peri"), make(norm_placement="sandwich")
    ids = torch.tensor([[1, 2, 3]])
    y = peri.emb_norm(peri.tok_emb(ids) + peri.pos_emb.weight[:3])
    torch.testing.assert_close(
        peri(ids), sandwich.out_head(sandwich.final_norm(nn.Sequential(*sandwich.trf_blocks)(y)))
    )


def test_deepnorm_draws_the_branches_smaller() -> None:
    plain, deep = make().trf_blocks[0], make(norm_placement="deepnorm").trf_blocks[0]
    beta = 24**-0.25
    for name in ("att.W_value.weight", "att.out_proj.weight", "ff.layers.0.weight", "ff.layers.2.weight"):
        torch.testing.assert_close(deep.get_parameter(name), beta * plain.get_parameter(name))
    assert torch.equal(deep.att.W_query.weight, plain.att.W_query.weight)


def test_rezero_starts_as_the_model_without_blocks() -> None:
    ids = torch.tensor([[1, 2, 3, 4]])
    model = make(shortcut="rezero", norm_placement="none")
    shallow = model.out_head(model.tok_emb(ids) + model.pos_emb.weight[:4])
    assert torch.equal(model(ids), shallow)
    model(ids).logsumexp(-1).sum().backward()
    block = model.trf_blocks[0]
    assert block.ff.layers[0].weight.grad.abs().max() == 0
    assert block.shortcut_ff.alpha.grad.abs() > 0


@pytest.mark.parametrize(("n_layers", "start"), [(3, 0.1), (24, 1e-5), (25, 1e-6)])
def test_layerscale_and_skipinit_start(n_layers: int, start: float) -> None:
    block = build(Config(model=replace(SMALL, n_layers=n_layers, shortcut="layerscale"))).trf_blocks[-1]
    torch.testing.assert_close(block.shortcut_att.alpha.data, torch.full((24,), start))
    block = build(Config(model=replace(SMALL, n_layers=n_layers, shortcut="skipinit"))).trf_blocks[-1]
    assert block.shortcut_ff.alpha.item() == pytest.approx(1 / math.sqrt(2 * n_layers))


def test_jacobian_of_a_branch_with_shortcut_is_identity_plus_its_own() -> None:
    block = make().trf_blocks[0].double()
    x = randn(1, 2, 24)
    branch = lambda x: block.ff(block.norm2(x))  # noqa: E731
    whole = torch.autograd.functional.jacobian(lambda x: x + branch(x), x).view(48, 48)
    alone = torch.autograd.functional.jacobian(branch, x).view(48, 48)
    torch.testing.assert_close(whole, torch.eye(48, dtype=torch.float64) + alone, rtol=0, atol=1e-14)


def test_settings_per_layer() -> None:
    model = make(layers={"0": {"norm": "identity"}, "1-2": {"activation": "relu", "options": {"norm": {"eps": 1e-3}}}})
    kinds = [(type(b.norm1).__name__, type(b.ff.layers[1]).__name__) for b in model.trf_blocks]
    assert kinds == [("Identity", "GELU"), ("LayerNorm", "ReLU"), ("LayerNorm", "ReLU")]
    assert [getattr(b.norm1, "eps", None) for b in model.trf_blocks] == [None, 1e-3, 1e-3]
    assert model.final_norm.eps == 1e-5
    plain = make()
    assert sum(p.numel() for p in plain.parameters()) - sum(p.numel() for p in model.parameters()) == 4 * 24
    assert torch.equal(model.trf_blocks[0].att.W_key.weight, plain.trf_blocks[0].att.W_key.weight)


@pytest.mark.parametrize(
    ("layers", "code", "facts"),
    [
        ({"3": {"norm": "identity"}}, "layer-out-of-range", {"where": "model.layers.3", "n_layers": 3}),
        ({"0-3": {"norm": "identity"}}, "layer-out-of-range", {"where": "model.layers.0-3", "n_layers": 3}),
        ({"2-1": {"norm": "identity"}}, "layer-span-backwards", {"where": "model.layers.2-1", "last": 1, "first": 2}),
        ({"x": {"norm": "identity"}}, "layer-span", {"where": "model.layers.x"}),
        ({"0": {"nrom": "identity"}}, "unknown-name", {"key": "model.layers.0", "value": "nrom", "suggestion": "norm"}),
        ({"0": {"emb_dim": 8}}, "layer-key-of-model", {"where": "model.layers.0"}),
        ({"0": 3}, "layer-holds-no-keys", {"key": "model.layers.0", "value": 3}),
        (
            {"0-1": {"norm": "identity"}, "1": {"norm": "rmsnorm"}},
            "layer-set-twice",
            {"where": "model.layers.1", "layer": 1},
        ),
        ({"0": {"expansion": -1}}, "out-of-range", {"key": "model.layers.0.expansion", "value": -1.0, "above": 0.0}),
        ({"0": {"expansion": "wide"}}, "wrong-type", {"key": "model.layers.0.expansion", "value": "wide"}),
        (
            {"0": {"norm_placement": "pots"}},
            "unknown-name",
            {"key": "model.layers.0.norm_placement", "value": "pots", "suggestion": "post"},
        ),
    ],
    ids=str,
)
def test_settings_per_layer_are_checked(layers: dict[str, object], code: str, facts: dict[str, Any]) -> None:
    with refused(code, **facts):
        skeleton(replace(SMALL, layers=layers))


def test_embedding_scale() -> None:
    plain, scaled = make(position="none"), make(position="none", embedding_scale="sqrt_dim")
    ids = torch.tensor([[1, 2, 3]])
    x = nn.Sequential(*plain.trf_blocks)(math.sqrt(24) * plain.tok_emb(ids))
    torch.testing.assert_close(scaled(ids), plain.out_head(plain.final_norm(x)))


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"qkv_bias": True}, 12 * 3 * 768), ({"attention_bias": False}, -12 * 768),
        ({"feed_forward_bias": False}, -12 * 5 * 768), ({"options": {"norm": {"bias": False}}}, -25 * 768),
        ({"norm": "rmsnorm"}, -25 * 768), ({"norm": "scalenorm"}, -25 * (2 * 768 - 1)), ({"norm": "dyt"}, 25),
        ({"norm_placement": "peri"}, 12 * 2 * 1536 + 1536), ({"norm_placement": "deepnorm"}, -1536),
        ({"shortcut": "layerscale"}, 12 * 2 * 768), ({"shortcut": "rezero"}, 24),
        ({"options": {"attention": {"qk_norm": "rms"}}}, 12 * 2 * 64),
        ({"options": {"attention": {"scale": "learned"}}}, 12 * 12),
    ],
    ids=str,
)  # fmt: skip
def test_what_each_switch_costs(changes: dict[str, object], difference: int) -> None:
    assert count(**changes) - count() == difference


def test_dropout_inside_the_feed_forward_layer_is_a_site_of_its_own() -> None:
    model = make(drop_rate=0.0, drop_feed_forward=0.5)
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(model(ids), model(ids))
    assert make(drop_rate=0.5).trf_blocks[0].ff.drop == 0.0
    with torch.random.fork_rng():
        model.train()
        assert not torch.equal(model(ids), model(ids))


# --- inits


@pytest.mark.parametrize(
    ("init", "matrix", "stream", "embedding"),
    [
        ("xavier", math.sqrt(2 / 48), math.sqrt(2 / 48), 0.02),
        ("small", math.sqrt(2 / (5 * 24)), 2 / (3 * math.sqrt(24)), math.sqrt(2 / (5 * 24))),
        ("mup", 1 / math.sqrt(24), 1 / math.sqrt(24) / math.sqrt(6), 1 / 16),
    ],
)
def test_inits_by_their_table(init: str, matrix: float, stream: float, embedding: float) -> None:
    model = make(init=init, qkv_bias=True)
    blocks = model.trf_blocks
    assert torch.cat([b.att.W_query.weight.flatten() for b in blocks]).std().item() == pytest.approx(matrix, rel=0.06)
    assert torch.cat([b.att.out_proj.weight.flatten() for b in blocks]).std().item() == pytest.approx(stream, rel=0.06)
    assert model.tok_emb.weight.std().item() == pytest.approx(embedding, rel=0.06)
    assert blocks[0].att.W_query.bias.abs().max() == 0


def test_mup_head_and_rates() -> None:
    model = make(init="mup")
    assert model.out_head.weight.std().item() == pytest.approx(0.02 * 256 / 24, rel=0.06)
    rates = learning_rate_scales(model, replace(SMALL, init="mup"))
    assert rates["trf_blocks.0.att.W_key.weight"] == rates["out_head.weight"] == 256 / 24
    assert rates["tok_emb.weight"] == rates["final_norm.scale"] == rates["trf_blocks.0.ff.layers.0.bias"] == 1.0
    assert set(learning_rate_scales(make(), SMALL).values()) == {1.0}
    with refused("mup-tied", key="model.init", value="mup"):
        make(init="mup", tie_weights=True)
