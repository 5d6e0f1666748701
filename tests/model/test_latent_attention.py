"""Latent attention: DeepSeek-V3's with the same weights, and what is remembered used as it lies, without keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

from gptlab.config import Config, ModelConfig
from gptlab.model import GPT, build, skeleton
from gptlab.model.attentions.latent import LatentAttention
from gptlab.probes.parameters import flops_per_token
from tests.support.doubled import doubled
from tests.support.refusals import refused

T, DIM, HEADS, PLAIN, TURNED, VALUES, LATENT = 9, 24, 3, 8, 4, 6, 10
SMALL = ModelConfig(
    vocab_size=61, context_length=16, emb_dim=DIM, n_heads=HEADS, n_layers=2, head_dim=PLAIN, drop_rate=0.0,
    attention="latent", position="rope",
)  # fmt: skip
WIDTHS = {"kv_latent": LATENT, "rope_dim": TURNED, "value_dim": VALUES}


def randn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def latent(pairing: str = "half", **options: Any) -> LatentAttention:
    """Every weight random, those of the norms too."""
    given = {"attention": {**WIDTHS, **options}, "position": {"pairing": pairing, "base": 100.0}, "norm": {"eps": 1e-6}}
    model = build(Config(model=replace(SMALL, norm="rmsnorm", options=given)))
    assert isinstance(model, GPT)
    layer = model.trf_blocks[0].att.double()
    assert isinstance(layer, LatentAttention)
    with torch.no_grad():
        for number, parameter in enumerate(layer.parameters()):
            parameter.copy_(randn(*parameter.shape, seed=number + 10) / 2)
    return layer


def copied(ours: LatentAttention, theirs: DeepseekV3Attention) -> None:
    """Their keys and values come out of one matrix, head by head."""
    k, v = (part.weight.unflatten(0, (HEADS, -1)) for part in (ours.W_key, ours.W_value))
    theirs.kv_b_proj.weight.copy_(torch.cat((k, v), dim=1).flatten(0, 1))
    for mine, other in ((ours.W_latent, theirs.kv_a_proj_with_mqa), (ours.out_proj, theirs.o_proj)):
        other.weight.copy_(mine.weight)
        if other.bias is not None:
            other.bias.copy_(mine.bias)
    theirs.kv_a_layernorm.weight.copy_(ours.latent_norm.scale)
    if ours.W_query_down is None:
        theirs.q_proj.weight.copy_(ours.W_query.weight)
        return
    theirs.q_a_proj.weight.copy_(ours.W_query_down.weight)
    theirs.q_a_layernorm.weight.copy_(ours.query_norm.scale)
    theirs.q_b_proj.weight.copy_(ours.W_query.weight)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("query_latent", [None, 7])
def test_it_is_deepseeks(pairing: str, query_latent: int | None) -> None:
    ours = latent(pairing, query_latent=query_latent)
    ours.out_proj.bias = None
    config = DeepseekV3Config(
        hidden_size=DIM, num_attention_heads=HEADS, num_key_value_heads=HEADS, q_lora_rank=query_latent,
        kv_lora_rank=LATENT, qk_rope_head_dim=TURNED, qk_nope_head_dim=PLAIN, v_head_dim=VALUES, num_hidden_layers=1,
        rope_interleave=pairing == "interleaved", attn_implementation="eager", attention_dropout=0.0,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
    )  # fmt: skip
    mask = torch.full((T, T), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    found = []
    with doubled(), torch.random.fork_rng():
        theirs = DeepseekV3Attention(config, 0).double().eval()
        with torch.no_grad():
            copied(ours, theirs)
        x = randn(2, T, DIM)
        turning = DeepseekV3RotaryEmbedding(config)(x, torch.arange(T)[None])
        for layer in (ours, theirs):
            inputs = x.clone().requires_grad_()
            y = layer(inputs) if layer is ours else layer(inputs, turning, mask)[0]
            y.mul(randn(2, T, DIM, seed=2)).sum().backward()
            found.append((y.detach(), inputs.grad))
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(
            mine, other, rtol=0, atol=1e-6 * float(other.abs().max())
        )  # their tables are float32
    for mine, other in ((ours.W_latent, theirs.kv_a_proj_with_mqa), (ours.out_proj, theirs.o_proj)):
        torch.testing.assert_close(mine.weight.grad, other.weight.grad, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_queries_may_meet_the_latents_themselves() -> None:
    """W_key moved to the queries, W_value behind the sum: the same, and no key or value of a head ever exists."""
    layer, x = latent("half", query_latent=7), randn(2, T, DIM)
    at = torch.arange(T)
    q, (shared, latents) = layer._queries(x, at), layer._remembered(x, at)
    into = layer.W_key.weight.unflatten(0, (HEADS, -1))  # (heads, head_dim, kv_latent)
    absorbed = torch.einsum("bhtd,hdc->bhtc", q[..., :PLAIN], into)
    logits = (absorbed @ latents.mT + q[..., PLAIN:] @ shared.mT) / (PLAIN + TURNED) ** 0.5
    weights = logits.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf).softmax(-1)
    out_of = layer.W_value.weight.unflatten(0, (HEADS, -1))
    y = torch.einsum("bhtc,hvc->bthv", weights @ latents, out_of).flatten(2)
    torch.testing.assert_close(layer(x), layer.out_proj(y), rtol=1e-11, atol=1e-11)


@torch.no_grad()
def test_what_is_remembered_is_small() -> None:
    layer = latent()
    found = layer(randn(2, T, DIM), state=layer.empty_state(2, 16))
    assert found.state.keys.shape == (2, 1, 16, TURNED) and found.state.values.shape == (2, 1, 16, LATENT)


def test_what_it_costs() -> None:
    model = replace(SMALL, n_layers=1, options={"attention": {**WIDTHS, "query_latent": 7}})
    layer = skeleton(model).trf_blocks[0].att
    products = DIM * 7 + 7 * HEADS * (PLAIN + TURNED) + DIM * (LATENT + TURNED) + LATENT * HEADS * (PLAIN + VALUES)
    products += HEADS * VALUES * DIM
    assert sum(p.numel() for p in layer.parameters()) == products + 7 + LATENT + DIM
    found = flops_per_token(skeleton(model), model, 8)
    others = flops_per_token(
        skeleton(replace(model, attention="identity", position="none", options={})),
        replace(model, attention="identity", position="none", options={}),
        8,
    )
    pairs = HEADS * (PLAIN + TURNED + VALUES) * 8
    assert found.forward - others.forward == 2 * (products + pairs)
    assert others.visible == others.forward
    assert found.forward - found.visible == 2 * pairs * 7 / 16  # 28 of 64 pairs are masked


@pytest.mark.parametrize("name", ["kv_latent", "query_latent", "rope_dim", "value_dim"])
def test_widths_are_checked(name: str) -> None:
    with refused("latent-width", key=f"model.options.attention.{name}", value=0):
        latent(**{name: 0})
    with refused("latent-width", key="model.options.attention.rope_dim", value=3):
        latent(rope_dim=3)
