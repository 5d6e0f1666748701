"""GPT-NeoX (Black et al. 2022; Pythia) and Phi (Li et al. 2023): LayerNorm, biases, rotary positions on a part of each
head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gptlab.weights.families.family import ACTIVATIONS, Family, Model, back, option, options, width_of
from gptlab.weights.families.rope import position_options, rope_parameters
from gptlab.weights.pieces import BOTH, NORM, ByHead, Piece, pairs
from gptlab.weights.settings import Settings


def _common(given: Settings, **defaults: int) -> Model:
    return {
        "vocab_size": given.whole("vocab_size", defaults["vocab"]),
        "context_length": given.whole("max_position_embeddings", 2048),
        "emb_dim": given.whole("hidden_size", defaults["width"]),
        "n_layers": given.whole("num_hidden_layers", defaults["layers"]),
        "n_heads": given.whole("num_attention_heads", defaults["heads"]),
        "hidden_dim": given.whole("intermediate_size", defaults["inner"]),
        "drop_rate": 0.0, "qkv_bias": True, "position": "rope", "init": "gpt2",
        "tie_weights": given.flag("tie_word_embeddings", False),
    }  # fmt: skip


def _back(model: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "vocab_size": model["vocab_size"], "max_position_embeddings": model["context_length"],
        "hidden_size": model["emb_dim"], "num_hidden_layers": model["n_layers"],
        "num_attention_heads": model["n_heads"], "intermediate_size": width_of(model),
        "hidden_act": back(ACTIVATIONS, model["activation"]), "layer_norm_eps": option(model, "norm", "eps", 1e-5),
        "tie_word_embeddings": model["tie_weights"],
        "rope_parameters": rope_parameters(model),
    }  # fmt: skip


def _neox_model(given: Settings) -> Model:
    model = _common(given, vocab=50432, width=6144, layers=44, heads=64, inner=24576)
    given.only("attention_bias", True)
    parallel = given.flag("use_parallel_residual", True)
    return model | {
        "activation": given.choice("hidden_act", ACTIVATIONS, "gelu"),
        "layout": "parallel_two_norms" if parallel else "serial",
        "options": options(
            norm={"eps": given.number("layer_norm_eps", 1e-5)},
            position=position_options(given, 0.25, "rotary_emb_base"),
        ),
    }  # fmt: skip


def _neox_config(model: Mapping[str, Any]) -> dict[str, Any]:
    return _back(model) | {
        "use_parallel_residual": model["layout"] == "parallel_two_norms", "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
    }  # fmt: skip


def _neox_pieces(model: Mapping[str, Any]) -> list[Piece]:
    root = "gpt_neox"
    found = [
        Piece(f"{root}.embed_in.weight", ("tok_emb.weight",)),
        Piece("embed_out.weight", ("out_head.weight",)),
        *pairs(Piece, f"{root}.final_layer_norm", "final_norm", NORM),
    ]
    for i in range(model["n_layers"]):
        there, here = f"{root}.layers.{i}", f"trf_blocks.{i}"
        for kind in ("weight", "bias"):
            qkv = tuple(f"{here}.att.W_{name}.{kind}" for name in ("query", "key", "value"))
            found.append(ByHead(f"{there}.attention.query_key_value.{kind}", qkv, model["n_heads"]))
        found += pairs(Piece, f"{there}.attention.dense", f"{here}.att.out_proj", BOTH)
        found += pairs(Piece, f"{there}.mlp.dense_h_to_4h", f"{here}.ff.layers.0", BOTH)
        found += pairs(Piece, f"{there}.mlp.dense_4h_to_h", f"{here}.ff.layers.2", BOTH)
        found += pairs(Piece, f"{there}.input_layernorm", f"{here}.norm1", NORM)
        found += pairs(Piece, f"{there}.post_attention_layernorm", f"{here}.norm2", NORM)
    return found


def _phi_model(given: Settings) -> Model:
    model = _common(given, vocab=51200, width=2048, layers=24, heads=32, inner=8192)
    given.only("qk_layernorm", False)
    given.only("resid_pdrop", 0, given.given.get("resid_pdrop"))
    kv_heads = given.maybe_whole("num_key_value_heads") or model["n_heads"]
    return model | {
        "n_kv_heads": kv_heads, "layout": "parallel",
        "activation": given.choice("hidden_act", ACTIVATIONS, "gelu_new"),
        "options": options(
            norm={"eps": given.number("layer_norm_eps", 1e-5)}, position=position_options(given, 0.5),
            head={"bias": True},
        ),
    }  # fmt: skip


def _phi_config(model: Mapping[str, Any]) -> dict[str, Any]:
    return _back(model) | {"num_key_value_heads": model.get("n_kv_heads") or model["n_heads"]}


def _phi_pieces(model: Mapping[str, Any]) -> list[Piece]:
    root = "model"
    found = [
        Piece(f"{root}.embed_tokens.weight", ("tok_emb.weight",)),
        *pairs(Piece, "lm_head", "out_head", BOTH),
        *pairs(Piece, f"{root}.final_layernorm", "final_norm", NORM),
    ]
    for i in range(model["n_layers"]):
        there, here = f"{root}.layers.{i}", f"trf_blocks.{i}"
        for theirs, ours in (("q_proj", "W_query"), ("k_proj", "W_key"), ("v_proj", "W_value"), ("dense", "out_proj")):
            found += pairs(Piece, f"{there}.self_attn.{theirs}", f"{here}.att.{ours}", BOTH)
        found += pairs(Piece, f"{there}.mlp.fc1", f"{here}.ff.layers.0", BOTH)
        found += pairs(Piece, f"{there}.mlp.fc2", f"{here}.ff.layers.2", BOTH)
        found += pairs(Piece, f"{there}.input_layernorm", f"{here}.norm1", NORM)
    return found


_TABLES = {
    "rotary_emb.inv_freq": "a table that follows from the config", "attention.bias": "a mask",
    "attention.masked_bias": "a mask",
}  # fmt: skip
NEOX = Family(
    "gpt_neox", "GPTNeoXForCausalLM", "gpt_neox.", _neox_model, _neox_config, _neox_pieces, dropped=_TABLES,
    zeros={"qkv_bias": True, "attention_bias": True, "feed_forward_bias": True, "options.norm.bias": True},
)  # fmt: skip
PHI = Family(
    "phi", "PhiForCausalLM", "model.", _phi_model, _phi_config, _phi_pieces, dropped=_TABLES,
    zeros={"qkv_bias": True, "attention_bias": True, "feed_forward_bias": True, "options.norm.bias": True,
           "options.head.bias": True},
)  # fmt: skip
