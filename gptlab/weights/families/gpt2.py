"""GPT-2 (Radford et al. 2019) and GPT-J (Wang & Komatsuzaki 2021), as transformers has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gptlab.weights.families.family import ACTIVATIONS, Family, Model, back, option, options, width_of
from gptlab.weights.pieces import BOTH, NORM, Piece, Stacked, StackedTransposed, Transposed, pairs
from gptlab.weights.settings import Settings

_MASKS = {"attn.bias": "a mask", "attn.masked_bias": "a mask"}


def _sizes(given: Settings, vocab: int, width: int, layers: int, heads: int, context: int) -> Model:
    emb_dim = given.whole("n_embd", width)
    rates = {
        key: given.number(theirs, default)
        for key, theirs, default in (
            ("drop_embedding", "embd_pdrop", 0.1 if vocab == 50257 else 0.0),
            ("drop_attention", "attn_pdrop", 0.1 if vocab == 50257 else 0.0),
            ("drop_shortcut", "resid_pdrop", 0.1 if vocab == 50257 else 0.0),
        )
    }
    return {
        "vocab_size": given.whole("vocab_size", vocab), "context_length": given.whole("n_positions", context),
        "emb_dim": emb_dim, "n_layers": given.whole("n_layer", layers), "n_heads": given.whole("n_head", heads),
        "hidden_dim": given.maybe_whole("n_inner") or 4 * emb_dim,
        "activation": given.choice("activation_function", ACTIVATIONS, "gelu_new"),
        "init": "gpt2", "drop_rate": rates["drop_attention"],
        **{key: rate for key, rate in rates.items() if rate != rates["drop_attention"]},
    }  # fmt: skip


def _back(model: Mapping[str, Any]) -> dict[str, Any]:
    rates = {key: model.get(key) for key in ("drop_embedding", "drop_attention", "drop_shortcut")}
    rates = {key: model["drop_rate"] if rate is None else rate for key, rate in rates.items()}
    return {
        "vocab_size": model["vocab_size"], "n_positions": model["context_length"], "n_embd": model["emb_dim"],
        "n_layer": model["n_layers"], "n_head": model["n_heads"], "n_inner": width_of(model),
        "activation_function": back(ACTIVATIONS, model["activation"]),
        "layer_norm_epsilon": option(model, "norm", "eps", 1e-5),
        "embd_pdrop": rates["drop_embedding"], "attn_pdrop": rates["drop_attention"],
        "resid_pdrop": rates["drop_shortcut"], "tie_word_embeddings": model["tie_weights"],
    }  # fmt: skip


def _gpt2_model(given: Settings) -> Model:
    given.only("n_ctx", given.given.get("n_positions"))
    given.only("scale_attn_weights", True)
    given.only("scale_attn_by_inverse_layer_idx", False)
    given.only("reorder_and_upcast_attn", True, False)
    given.only("add_cross_attention", False)
    eps = given.number("layer_norm_epsilon", 1e-5)
    return _sizes(given, 50257, 768, 12, 12, 1024) | {
        "qkv_bias": True, "tie_weights": given.flag("tie_word_embeddings", True), "options": options(norm={"eps": eps}),
    }  # fmt: skip


def _gpt2_pieces(model: Mapping[str, Any]) -> list[Piece]:
    root = "transformer"
    found = [
        Piece(f"{root}.wte.weight", ("tok_emb.weight",)),
        Piece(f"{root}.wpe.weight", ("pos_emb.weight",)),
        Piece("lm_head.weight", ("out_head.weight",)),
        *pairs(Piece, f"{root}.ln_f", "final_norm", NORM),
    ]
    for i in range(model["n_layers"]):
        there, here = f"{root}.h.{i}", f"trf_blocks.{i}"
        for kind, piece, stacked in (("weight", Transposed, StackedTransposed), ("bias", Piece, Stacked)):
            qkv = tuple(f"{here}.att.W_{name}.{kind}" for name in ("query", "key", "value"))
            found.append(stacked(f"{there}.attn.c_attn.{kind}", qkv))
            for theirs, ours in (
                ("attn.c_proj", "att.out_proj"),
                ("mlp.c_fc", "ff.layers.0"),
                ("mlp.c_proj", "ff.layers.2"),
            ):
                found.append(piece(f"{there}.{theirs}.{kind}", (f"{here}.{ours}.{kind}",)))
        found += pairs(Piece, f"{there}.ln_1", f"{here}.norm1", NORM)
        found += pairs(Piece, f"{there}.ln_2", f"{here}.norm2", NORM)
    return found


def _gptj_model(given: Settings) -> Model:
    model = _sizes(given, 50400, 4096, 28, 16, 2048)
    head_dim = model["emb_dim"] // model["n_heads"]
    turned = given.maybe_whole("rotary_dim", 64) or head_dim
    eps = given.number("layer_norm_epsilon", 1e-5)
    return model | {
        "layout": "parallel", "position": "rope", "attention_bias": False,
        "tie_weights": given.flag("tie_word_embeddings", False),
        "options": options(
            norm={"eps": eps}, position={"pairing": "interleaved", "fraction": turned / head_dim}, head={"bias": True}
        ),
    }  # fmt: skip


def _gptj_config(model: Mapping[str, Any]) -> dict[str, Any]:
    turned = round(option(model, "position", "fraction", 1.0) * (model["emb_dim"] // model["n_heads"]))
    return _back(model) | {"rotary_dim": turned}


def _gptj_pieces(model: Mapping[str, Any]) -> list[Piece]:
    root = "transformer"
    found = [
        Piece(f"{root}.wte.weight", ("tok_emb.weight",)),
        *pairs(Piece, "lm_head", "out_head", BOTH),
        *pairs(Piece, f"{root}.ln_f", "final_norm", NORM),
    ]
    for i in range(model["n_layers"]):
        there, here = f"{root}.h.{i}", f"trf_blocks.{i}"
        for theirs, ours in (("q_proj", "W_query"), ("k_proj", "W_key"), ("v_proj", "W_value"), ("out_proj",) * 2):
            found.append(Piece(f"{there}.attn.{theirs}.weight", (f"{here}.att.{ours}.weight",)))
        found += pairs(Piece, f"{there}.mlp.fc_in", f"{here}.ff.layers.0", BOTH)
        found += pairs(Piece, f"{there}.mlp.fc_out", f"{here}.ff.layers.2", BOTH)
        found += pairs(Piece, f"{there}.ln_1", f"{here}.norm1", NORM)
    return found


GPT2 = Family(
    "gpt2", "GPT2LMHeadModel", "transformer.", _gpt2_model, _back, _gpt2_pieces, dropped=_MASKS,
    zeros={"qkv_bias": True, "attention_bias": True, "feed_forward_bias": True, "options.norm.bias": True},
)  # fmt: skip
GPTJ = Family(
    "gptj", "GPTJForCausalLM", "transformer.", _gptj_model, _gptj_config, _gptj_pieces, dropped=_MASKS,
    zeros={"feed_forward_bias": True, "options.norm.bias": True, "options.head.bias": True},
)  # fmt: skip
