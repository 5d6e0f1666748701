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
from tests.support.doubled import doubled

PRESETS = sorted(path.stem for path in (Path(__file__).resolve().parents[2] / "conf" / "model").glob("*.yaml"))
OF_NO_FAMILY = {"deep_mlp", "dummy", "toy_lesson"}  # for lessons: no published model is like them
IDS = {"use_cache": False, "bos_token_id": 0, "eos_token_id": 0}


KINDS = (
    "GPT2LMHeadModel", "GPTJForCausalLM", "LlamaForCausalLM", "Olmo2ForCausalLM", "Qwen3ForCausalLM",
    "SmolLM3ForCausalLM", "MistralForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM", "PhiForCausalLM",
    "GPTNeoXForCausalLM", "GraniteForCausalLM", "MixtralForCausalLM", "Qwen3MoeForCausalLM", "OlmoeForCausalLM",
)  # fmt: skip
IMPORTED = [getattr(transformers, kind) for kind in KINDS]  # before `doubled`, which reaches what is imported
LAYERS = {"gemma3_1b": 8, "smollm3_3b": 4}  # as many as their pattern needs
EXPERTS = {"n_experts": 6, "top_k": 3}
HEAD_DIM, WINDOW = 40, 7  # two fifths and a quarter of a head are whole pairs


def small(name: str) -> ModelConfig:
    """The preset with a few layers, tokens and features."""
    n_layers = LAYERS.get(name, 2)
    layers = "layer_sizes" if name == "deep_mlp" else "n_layers"
    model = gptlab.compose([f"model={name}", f"model.{layers}={n_layers}"]).model
    heads = min(model.n_heads, 4)
    kv_heads = model.n_kv_heads and max(1, heads * model.n_kv_heads // model.n_heads)
    spans = {span: {**given, "options": narrowed(given.get("options", {}))} for span, given in model.layers.items()}
    own_size = model.head_dim is not None
    return replace(
        model, vocab_size=61, context_length=32, emb_dim=24 if own_size else HEAD_DIM * heads, n_heads=heads,
        n_kv_heads=kv_heads, head_dim=HEAD_DIM if own_size else None, hidden_dim=model.hidden_dim and 52,
        drop_rate=0.0, layers=spans, options=narrowed(model.options),
    )  # fmt: skip


def narrowed(options: dict[str, Any]) -> dict[str, Any]:
    """With a window that hides something of a few tokens, and few experts where there are any."""
    for slot, name, fewer in (("attention", "window", {"window": WINDOW}), ("feed_forward", "expert", EXPERTS)):
        if name in options.get(slot, {}):
            options = {**options, slot: {**options[slot], **fewer}}
    return options


def made(config: Any, kind: str) -> torch.nn.Module:
    return theirs(config, kind).double()


def norm_eps(model: ModelConfig) -> float:
    return float(model.options.get("norm", {}).get("eps", 1e-5))


def gpt2(model: ModelConfig, ours: GPT) -> torch.nn.Module:
    config = transformers.GPT2Config(
        vocab_size=61, n_positions=32, n_embd=model.emb_dim, n_layer=model.n_layers, n_head=model.n_heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=norm_eps(model), tie_word_embeddings=model.tie_weights,
        n_inner=hidden_width(model.emb_dim, model.expansion), **IDS,
    )  # fmt: skip
    state = dict(ours.named_parameters())
    zero = torch.zeros(3 * model.emb_dim)
    found = {"transformer.wte.weight": state["tok_emb.weight"], "transformer.wpe.weight": state["pos_emb.weight"]}
    found["lm_head.weight"] = ours.out_head.weight
    for a, b in (("weight", "scale"), ("bias", "shift")):
        found[f"transformer.ln_f.{a}"] = state[f"final_norm.{b}"]
        for i in range(model.n_layers):
            at, to = f"trf_blocks.{i}", f"transformer.h.{i}"
            qkv = [state.get(f"{at}.att.W_{n}.{a}") for n in ("query", "key", "value")]
            found[f"{to}.attn.c_attn.{a}"] = (
                zero if qkv[0] is None else torch.cat([x for x in qkv if x is not None]).t()
            )
            found[f"{to}.attn.c_proj.{a}"] = state[f"{at}.att.out_proj.{a}"].t()
            found[f"{to}.mlp.c_fc.{a}"] = state[f"{at}.ff.layers.0.{a}"].t()
            found[f"{to}.mlp.c_proj.{a}"] = state[f"{at}.ff.layers.2.{a}"].t()
            found |= {f"{to}.ln_{k}.{a}": state[f"{at}.norm{k}.{b}"] for k in (1, 2)}
    other = made(config, "GPT2LMHeadModel")
    load(other, found)
    return other


def llama(model: ModelConfig, ours: GPT, kind: str = "Llama", **more: Any) -> torch.nn.Module:
    """Llama and what came of it: `kind` is the name that transformers has for the family."""
    olmo, gemma = model.norm_placement == "out", model.norm_placement == "sandwich"
    base = float(model.options.get("position", {}).get("base", 10_000.0))
    known = {"rope_parameters": {"rope_type": "default", "rope_theta": base}} | more
    config = getattr(transformers, f"{kind}TextConfig" if kind == "Gemma3" else f"{kind}Config")(
        vocab_size=61, hidden_size=model.emb_dim, num_hidden_layers=model.n_layers, num_attention_heads=model.n_heads,
        intermediate_size=hidden_width(model.emb_dim, model.expansion, model.hidden_dim),
        num_key_value_heads=model.n_kv_heads or model.n_heads, max_position_embeddings=32,
        rms_norm_eps=norm_eps(model), pad_token_id=None, tie_word_embeddings=model.tie_weights,
        head_dim=model.head_dim or model.emb_dim // model.n_heads, attn_implementation="eager", **IDS, **known,
    )  # fmt: skip
    own, after = ("norm1_output", "norm2_output") if olmo else ("norm1", "norm2")
    first = "post_attention_layernorm" if olmo else "input_layernorm"
    second = "post_feedforward_layernorm" if olmo else "post_attention_layernorm"
    if gemma:
        second = "pre_feedforward_layernorm"
    norms = {first: f"{own}.scale", second: f"{after}.scale"}
    if gemma:
        norms |= {"post_attention_layernorm": "norm1_output.scale", "post_feedforward_layernorm": "norm2_output.scale"}
    if hasattr(ours.trf_blocks[0].att, "query_norm"):
        norms |= {"self_attn.q_norm": "att.query_norm.scale", "self_attn.k_norm": "att.key_norm.scale"}
    other = made(config, f"{kind}ForCausalLM")
    routed = model.feed_forward == "moe"
    inner = {name: our for name, our in (LLAMA_BLOCK | norms).items() if not (routed and name.startswith("mlp."))}
    names = llama_names(ours, inner) | (stacked_names(ours) if routed else {})
    if gemma:  # theirs counts the scales of its norms from one
        names = {name: value - 1 if "norm" in name else value for name, value in names.items()}
    load(other, names)
    return other


def mistral(model: ModelConfig, ours: GPT) -> torch.nn.Module:
    return llama(model, ours, "Mistral", sliding_window=WINDOW)


def of_experts(model: ModelConfig, ours: GPT) -> torch.nn.Module:
    """Mixtral, Qwen3-MoE and OLMoE."""
    qk_norm, given = model.options.get("attention", {}).get("qk_norm"), model.options["feed_forward"]
    kind = {"rms": "Qwen3Moe", "rms_full": "Olmoe"}.get(qk_norm, "Mixtral")
    known = {"num_local_experts": EXPERTS["n_experts"], "num_experts_per_tok": EXPERTS["top_k"]}
    if kind != "Mixtral":
        width = hidden_width(model.emb_dim, model.expansion, model.hidden_dim)
        known |= {"num_experts": EXPERTS["n_experts"], "moe_intermediate_size": width, "decoder_sparse_step": 1}
        known |= {"norm_topk_prob": given.get("normalised", True)}
    return llama(model, ours, kind, experts_implementation="eager", **known)


def stacked_names(ours: GPT) -> dict[str, Tensor]:
    """Their names of the experts, whose gates and values are one matrix, and of the router."""
    found = {}
    for i, block in enumerate(ours.trf_blocks):
        bank: Any = block.ff.experts
        at = f"model.layers.{i}.mlp"
        found[f"{at}.gate.weight"] = block.ff.router.project.weight
        found[f"{at}.experts.gate_up_proj"] = torch.cat([bank.gate.weight, bank.value.weight], 1)
        found[f"{at}.experts.down_proj"] = bank.out.weight
    return found


def gemma2(model: ModelConfig, ours: GPT) -> torch.nn.Module:
    caps = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    return llama(model, ours, "Gemma2", sliding_window=WINDOW, query_pre_attn_scalar=HEAD_DIM, **caps)


def gemma3(model: ModelConfig, ours: GPT) -> torch.nn.Module:
    bases = {"sliding_attention": 1e4, "full_attention": 1e6}
    rope = {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()}
    return llama(
        model, ours, "Gemma3", sliding_window=WINDOW, query_pre_attn_scalar=HEAD_DIM, rope_parameters=rope
    )  # fmt: skip


def beside(model: ModelConfig, ours: GPT) -> torch.nn.Module:
    """Phi-2 and GPT-NeoX: parallel branches, biases, and a part of each head that turns."""
    phi = model.layout == "parallel"
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.4 if phi else 0.25}
    config = (transformers.PhiConfig if phi else transformers.GPTNeoXConfig)(
        vocab_size=61, hidden_size=model.emb_dim, num_hidden_layers=model.n_layers, num_attention_heads=model.n_heads,
        intermediate_size=4 * model.emb_dim, max_position_embeddings=32, layer_norm_eps=norm_eps(model),
        rope_parameters=rope, attn_implementation="eager", **IDS,
    )  # fmt: skip
    root, table, last = (
        ("model", "embed_tokens", "final_layernorm") if phi else ("gpt_neox", "embed_in", "final_layer_norm")
    )
    mlp = ("fc1", "fc2") if phi else ("dense_h_to_4h", "dense_4h_to_h")
    state = dict(ours.named_parameters())
    found = {f"{root}.{table}.weight": state["tok_emb.weight"], "lm_head.weight": state["out_head.weight"]}
    if phi:
        found["lm_head.bias"] = state["out_head.bias"]
    for kind, norm in (("weight", "scale"), ("bias", "shift")):
        found[f"{root}.{last}.{kind}"] = state[f"final_norm.{norm}"]
        for i in range(model.n_layers):
            at, to = f"trf_blocks.{i}", f"{root}.layers.{i}"
            found[f"{to}.input_layernorm.{kind}"] = state[f"{at}.norm1.{norm}"]
            found[f"{to}.mlp.{mlp[0]}.{kind}"] = state[f"{at}.ff.layers.0.{kind}"]
            found[f"{to}.mlp.{mlp[1]}.{kind}"] = state[f"{at}.ff.layers.2.{kind}"]
            qkv = [state[f"{at}.att.W_{name}.{kind}"] for name in ("query", "key", "value")]
            if phi:
                found |= {f"{to}.self_attn.{name}_proj.{kind}": value for name, value in zip("qkv", qkv, strict=True)}
                found[f"{to}.self_attn.dense.{kind}"] = state[f"{at}.att.out_proj.{kind}"]
            else:
                heads = torch.stack([value.unflatten(0, (model.n_heads, HEAD_DIM)) for value in qkv], 1)
                found[f"{to}.attention.query_key_value.{kind}"] = heads.flatten(0, 2)  # theirs goes head by head
                found[f"{to}.attention.dense.{kind}"] = state[f"{at}.att.out_proj.{kind}"]
                found[f"{to}.post_attention_layernorm.{kind}"] = state[f"{at}.norm2.{norm}"]
    other = made(config, "PhiForCausalLM" if phi else "GPTNeoXForCausalLM")
    load(other, found)
    return other


def gpt_j(model: ModelConfig, ours: GPT) -> torch.nn.Module:
    config = transformers.GPTJConfig(
        vocab_size=61, n_positions=32, n_embd=model.emb_dim, n_layer=model.n_layers, n_head=model.n_heads,
        resid_pdrop=0.0,
        rotary_dim=model.emb_dim // model.n_heads, embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=norm_eps(model),
        **IDS,
    )  # fmt: skip
    state = dict(ours.named_parameters())
    found = {"transformer.wte.weight": state["tok_emb.weight"], "lm_head.weight": state["out_head.weight"]}
    found["lm_head.bias"] = torch.zeros(61)
    for a, b in (("weight", "scale"), ("bias", "shift")):
        found[f"transformer.ln_f.{a}"] = state[f"final_norm.{b}"]
        for i in range(model.n_layers):
            at, to = f"trf_blocks.{i}", f"transformer.h.{i}"
            found[f"{to}.ln_1.{a}"] = state[f"{at}.norm1.{b}"]
            found[f"{to}.mlp.fc_in.{a}"] = state[f"{at}.ff.layers.0.{a}"]
            found[f"{to}.mlp.fc_out.{a}"] = state[f"{at}.ff.layers.2.{a}"]
    for i in range(model.n_layers):
        for theirs_name, our_name in (("q_proj", "W_query"), ("k_proj", "W_key"), ("v_proj", "W_value")):
            found[f"transformer.h.{i}.attn.{theirs_name}.weight"] = state[f"trf_blocks.{i}.att.{our_name}.weight"]
        found[f"transformer.h.{i}.attn.out_proj.weight"] = state[f"trf_blocks.{i}.att.out_proj.weight"]
    other = made(config, "GPTJForCausalLM")
    load(other, found)
    return other


def test_granite_and_its_four_multipliers() -> None:
    """Of embeddings, attention logits, branches and output logits: none of them what another model has."""
    ids = torch.arange(58).view(2, 29)
    model = ModelConfig(
        vocab_size=61, context_length=32, emb_dim=24, n_heads=6, n_kv_heads=2, n_layers=3, drop_rate=0.0,
        norm="rmsnorm", feed_forward="swiglu", hidden_dim=52, position="rope", attention_bias=False,
        feed_forward_bias=False, tie_weights=True, init="gpt2", embedding_multiplier=11.0, shortcut="scaled",
        options={
            "norm": {"eps": 3e-4}, "position": {"base": 777.0}, "attention": {"multiplier": 0.37},
            "shortcut": {"scale": 0.21}, "head": {"scale": 1 / 7},
        },
    )  # fmt: skip
    with doubled():
        ours = build(Config(model=model)).double()
        assert isinstance(ours, GPT)
        away_from_ones(ours)
        other = llama(
            model, ours, "Granite", embedding_multiplier=11.0, attention_multiplier=0.37, residual_multiplier=0.21,
            logits_scaling=7.0,
        )  # fmt: skip
        logits, expected = ours(ids), other(ids).logits
        logits.square().sum().backward()
        expected.square().sum().backward()
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-10 * expected.std().item())
    gradient = other.get_input_embeddings().weight.grad
    torch.testing.assert_close(ours.tok_emb.weight.grad, gradient, rtol=0, atol=1e-9 * gradient.std().item())


FAMILIES: dict[str, Any] = {
    "gpt2": gpt2, "gpt3": gpt2, "tiny": gpt2, "gpt_j": gpt_j, "llama": llama, "smollm2": llama,
    "mixtral": of_experts, "qwen3_30b": of_experts, "olmoe": of_experts,
    "olmo2": lambda model, ours: llama(model, ours, "Olmo2"), "qwen3": lambda model, ours: llama(model, ours, "Qwen3"),
    "smollm3": lambda model, ours: llama(model, ours, "SmolLM3"), "mistral": mistral, "gemma2": gemma2,
    "gemma3": gemma3, "phi": beside, "pythia": beside, "gpt_neox": beside,
}  # fmt: skip


def family(name: str) -> Any:
    return next(make for start, make in FAMILIES.items() if name.startswith(start))


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in OF_NO_FAMILY])
def test_the_preset_is_the_published_model(name: str) -> None:
    """In float64 from end to end: logits, and the gradient that reaches the embeddings through all that is above."""
    model = small(name)
    ids: Tensor = torch.randint(61, (2, 29), generator=torch.Generator().manual_seed(0))
    weights = torch.randn(2, 29, 61, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with doubled():
        ours = build(Config(model=model)).double()
        assert isinstance(ours, GPT)
        away_from_ones(ours)
        other = family(name)(model, ours)
        logits, expected = ours(ids), other(ids).logits
        (logits * weights).sum().backward()
        (expected * weights).sum().backward()
    spread = expected.std().item()
    assert spread > 0.01
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-10 * spread)
    gradient, theirs_ = ours.tok_emb.weight.grad, other.get_input_embeddings().weight.grad
    torch.testing.assert_close(gradient, theirs_, rtol=0, atol=1e-9 * theirs_.std().item())
