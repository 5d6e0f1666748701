"""Every preset of a published family, as composed, against transformers with the same weights.

Sizes are made small where they are large; all else is the preset's: eps, base of the rotation, biases, placements.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import gptlab
from gptlab.config import Config, ModelConfig
from gptlab.model import GPT, build
from gptlab.model.feed_forward import hidden_width
from tests.model.test_against_transformers import LLAMA_BLOCK, away_from_ones, llama_names, load, theirs

PRESETS = sorted(path.stem for path in (Path(__file__).resolve().parents[2] / "conf" / "model").glob("*.yaml"))
OF_NO_FAMILY = {"deep_mlp", "dummy", "toy_lesson"}  # for lessons: no published model is like them
IDS = {"use_cache": False, "bos_token_id": 0, "eos_token_id": 0}


def small(name: str) -> ModelConfig:
    """The preset with two layers, a few tokens and a few features."""
    model = gptlab.compose([f"model={name}"]).model
    heads = min(model.n_heads, 4)
    kv_heads = model.n_kv_heads and max(1, heads * model.n_kv_heads // model.n_heads)
    width = 8 * heads
    return replace(
        model, vocab_size=61, context_length=32, emb_dim=width, n_heads=heads, n_kv_heads=kv_heads, n_layers=2,
        drop_rate=0.0, layers={},
    )  # fmt: skip


def norm_eps(model: ModelConfig) -> float:
    return float(model.options.get("norm", {}).get("eps", 1e-5))


def gpt2(model: ModelConfig, ours: GPT) -> torch.nn.Module:
    config = transformers.GPT2Config(
        vocab_size=61, n_positions=32, n_embd=model.emb_dim, n_layer=2, n_head=model.n_heads, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=norm_eps(model), tie_word_embeddings=model.tie_weights,
        n_inner=hidden_width(model.emb_dim, model.expansion), **IDS,
    )  # fmt: skip
    state = dict(ours.named_parameters())
    zero = torch.zeros(3 * model.emb_dim)
    found = {"transformer.wte.weight": state["tok_emb.weight"], "transformer.wpe.weight": state["pos_emb.weight"]}
    found["lm_head.weight"] = ours.out_head.weight
    for a, b in (("weight", "scale"), ("bias", "shift")):
        found[f"transformer.ln_f.{a}"] = state[f"final_norm.{b}"]
        for i in range(2):
            at, to = f"trf_blocks.{i}", f"transformer.h.{i}"
            qkv = [state.get(f"{at}.att.W_{n}.{a}") for n in ("query", "key", "value")]
            found[f"{to}.attn.c_attn.{a}"] = (
                zero if qkv[0] is None else torch.cat([x for x in qkv if x is not None]).t()
            )
            found[f"{to}.attn.c_proj.{a}"] = state[f"{at}.att.out_proj.{a}"].t()
            found[f"{to}.mlp.c_fc.{a}"] = state[f"{at}.ff.layers.0.{a}"].t()
            found[f"{to}.mlp.c_proj.{a}"] = state[f"{at}.ff.layers.2.{a}"].t()
            found |= {f"{to}.ln_{k}.{a}": state[f"{at}.norm{k}.{b}"] for k in (1, 2)}
    other = theirs(config, "GPT2LMHeadModel")
    load(other, found)
    return other


def llama(model: ModelConfig, ours: GPT) -> torch.nn.Module:
    olmo = model.norm_placement == "out"
    base = float(model.options.get("position", {}).get("base", 10_000.0))
    config = (transformers.Olmo2Config if olmo else transformers.LlamaConfig)(
        vocab_size=61, hidden_size=model.emb_dim, num_hidden_layers=2, num_attention_heads=model.n_heads,
        intermediate_size=hidden_width(model.emb_dim, model.expansion), num_key_value_heads=model.n_kv_heads,
        max_position_embeddings=32, rms_norm_eps=norm_eps(model), rope_theta=base, pad_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": base}, **IDS,
    )  # fmt: skip
    own, after = ("norm1_output", "norm2_output") if olmo else ("norm1", "norm2")
    first = "post_attention_layernorm" if olmo else "input_layernorm"
    second = "post_feedforward_layernorm" if olmo else "post_attention_layernorm"
    norms = {first: f"{own}.scale", second: f"{after}.scale"}
    if olmo:
        norms |= {"self_attn.q_norm": "att.query_norm.scale", "self_attn.k_norm": "att.key_norm.scale"}
    other = theirs(config, "Olmo2ForCausalLM" if olmo else "LlamaForCausalLM")
    load(other, llama_names(ours, LLAMA_BLOCK | norms))
    return other


def gpt_j(model: ModelConfig, ours: GPT) -> torch.nn.Module:
    config = transformers.GPTJConfig(
        vocab_size=61, n_positions=32, n_embd=model.emb_dim, n_layer=2, n_head=model.n_heads, resid_pdrop=0.0,
        rotary_dim=model.emb_dim // model.n_heads, embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=norm_eps(model),
        **IDS,
    )  # fmt: skip
    state = dict(ours.named_parameters())
    found = {"transformer.wte.weight": state["tok_emb.weight"], "lm_head.weight": state["out_head.weight"]}
    found["lm_head.bias"] = torch.zeros(61)
    for a, b in (("weight", "scale"), ("bias", "shift")):
        found[f"transformer.ln_f.{a}"] = state[f"final_norm.{b}"]
        for i in range(2):
            at, to = f"trf_blocks.{i}", f"transformer.h.{i}"
            found[f"{to}.ln_1.{a}"] = state[f"{at}.norm1.{b}"]
            found[f"{to}.mlp.fc_in.{a}"] = state[f"{at}.ff.layers.0.{a}"]
            found[f"{to}.mlp.fc_out.{a}"] = state[f"{at}.ff.layers.2.{a}"]
    for i in range(2):
        for theirs_name, our_name in (("q_proj", "W_query"), ("k_proj", "W_key"), ("v_proj", "W_value")):
            found[f"transformer.h.{i}.attn.{theirs_name}.weight"] = state[f"trf_blocks.{i}.att.{our_name}.weight"]
        found[f"transformer.h.{i}.attn.out_proj.weight"] = state[f"trf_blocks.{i}.att.out_proj.weight"]
    other = theirs(config, "GPTJForCausalLM")
    load(other, found)
    return other


def family(model: ModelConfig) -> Any:
    return gpt_j if model.layout == "parallel" else gpt2 if model.position == "learned" else llama


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in PRESETS if name not in OF_NO_FAMILY])
def test_the_preset_is_the_published_model(name: str) -> None:
    model = small(name)
    ours = build(Config(model=model))
    assert isinstance(ours, GPT)
    away_from_ones(ours)
    ids: Tensor = torch.randint(61, (2, 29), generator=torch.Generator().manual_seed(0))
    expected = family(model)(model, ours)(ids).logits
    assert (ours(ids) - expected).abs().max() < 1e-4 * expected.std()
