"""Llama (Touvron et al. 2023) and what came of it: RMSNorm, a gated feed-forward layer, rotary positions.

One `Line` says what sets each member apart: the defaults of its class, and where its norms stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gptlab.weights.families.family import GATED, Family, Model, back, option, options, width_of
from gptlab.weights.families.layer_kinds import per_layer, turns
from gptlab.weights.families.rope import of_node, position_options, rope_parameters
from gptlab.weights.pieces import FromOne, Piece
from gptlab.weights.settings import Settings

_PRE = {"input_layernorm": "norm1", "post_attention_layernorm": "norm2"}
_OUT = {"post_attention_layernorm": "norm1_output", "post_feedforward_layernorm": "norm2_output"}
_SANDWICH = {"input_layernorm": "norm1", "pre_feedforward_layernorm": "norm2"} | _OUT
_QK = {"self_attn.q_norm": "att.query_norm", "self_attn.k_norm": "att.key_norm"}
_MATRICES = {
    "self_attn.q_proj": "att.W_query", "self_attn.k_proj": "att.W_key", "self_attn.v_proj": "att.W_value",
    "self_attn.o_proj": "att.out_proj", "mlp.gate_proj": "ff.gate", "mlp.up_proj": "ff.value",
    "mlp.down_proj": "ff.out",
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A member of the family: the defaults of its config class, and what its blocks have."""

    name: str
    class_name: str
    vocab: int
    width: int
    inner: int
    layers: int
    heads: int
    context: int
    kv_heads: int | None = None  # None: as heads
    head_dim: int | None = None  # None: width / heads
    eps: float = 1e-6
    base: float = 10_000.0
    tied: bool = False
    qk_norm: str | None = None
    norms: Mapping[str, str] = field(default_factory=lambda: _PRE)
    biases: tuple[str, ...] = ()  # keys of its config that put biases in
    extra: Callable[[Settings, Model], Model] = lambda given, model: {}
    extra_back: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda model: {}
    from_one: bool = False
    act: str = "hidden_act"


def _model(line: Line, given: Settings) -> Model:
    given.only("quantization_config", None)
    emb_dim, heads = given.whole("hidden_size", line.width), given.whole("num_attention_heads", line.heads)
    default = line.head_dim or emb_dim // heads
    attention_bias = given.flag("attention_bias", False) if "attention_bias" in line.biases else False
    feed_forward = given.choice(line.act, GATED, "gelu_pytorch_tanh" if line.from_one else "silu")
    model: Model = {
        "vocab_size": given.whole("vocab_size", line.vocab),
        "context_length": given.whole("max_position_embeddings", line.context),
        "emb_dim": emb_dim, "n_layers": given.whole("num_hidden_layers", line.layers), "n_heads": heads,
        "n_kv_heads": given.maybe_whole("num_key_value_heads", line.kv_heads) or heads,
        "head_dim": given.maybe_whole("head_dim", None) or default,
        "hidden_dim": given.whole("intermediate_size", line.inner),
        "drop_rate": 0.0, "norm": "rmsnorm", "feed_forward": feed_forward, "position": "rope", "init": "gpt2",
        "qkv_bias": attention_bias, "attention_bias": attention_bias,
        "feed_forward_bias": given.flag("mlp_bias", False) if "mlp_bias" in line.biases else False,
        "tie_weights": given.flag("tie_word_embeddings", line.tied),
    }  # fmt: skip
    if rate := given.number("attention_dropout", 0.0):
        model["drop_attention"] = rate
    model["options"] = {
        "norm": {"eps": given.number("rms_norm_eps", line.eps)},
        **({"attention": {"qk_norm": line.qk_norm}} if line.qk_norm else {}),
    }
    if line.name != "gemma3_text":
        model["options"]["position"] = position_options(given, base=line.base)
    more = line.extra(given, model)
    slots = {slot: {**model["options"].get(slot, {}), **more.get("options", {}).get(slot, {})}
             for slot in {*model["options"], *more.get("options", {})}}  # fmt: skip
    return model | more | {"options": options(**slots)}


def _config(line: Line, model: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "vocab_size": model["vocab_size"], "max_position_embeddings": model["context_length"],
        "hidden_size": model["emb_dim"], "num_hidden_layers": model["n_layers"],
        "num_attention_heads": model["n_heads"],
        "num_key_value_heads": model.get("n_kv_heads") or model["n_heads"],
        "head_dim": model.get("head_dim") or model["emb_dim"] // model["n_heads"],
        "intermediate_size": width_of(model), line.act: back(GATED, model["feed_forward"]),
        "rms_norm_eps": option(model, "norm", "eps", 1e-5), "tie_word_embeddings": model["tie_weights"],
        "attention_dropout": 0.0, "rope_parameters": rope_parameters(model),
        "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
    }  # fmt: skip
    if "attention_bias" in line.biases:
        found["attention_bias"] = bool(model["qkv_bias"])
    if "mlp_bias" in line.biases:
        found["mlp_bias"] = bool(model["feed_forward_bias"])
    return found | line.extra_back(model)


def _pieces(line: Line, model: Mapping[str, Any]) -> list[Piece]:
    norm = FromOne if line.from_one else Piece
    found = [
        Piece("model.embed_tokens.weight", ("tok_emb.weight",)),
        Piece("lm_head.weight", ("out_head.weight",)),
        norm("model.norm.weight", ("final_norm.scale",)),
    ]
    for i in range(model["n_layers"]):
        there, here = f"model.layers.{i}", f"trf_blocks.{i}"
        for theirs, ours in _MATRICES.items():
            found += [Piece(f"{there}.{theirs}.{kind}", (f"{here}.{ours}.{kind}",)) for kind in ("weight", "bias")]
        norms = {**line.norms, **(_QK if line.qk_norm else {})}
        found += [norm(f"{there}.{theirs}.weight", (f"{here}.{ours}.scale",)) for theirs, ours in norms.items()]
    return found


def _window(given: Settings, model: Model) -> Model:
    """Mistral: all layers look back the same way."""
    return {"options": options(attention={"window": given.maybe_whole("sliding_window", 4096)})}


def _window_back(model: Mapping[str, Any]) -> dict[str, Any]:
    return {"sliding_window": option(model, "attention", "window")}


def _without_window(given: Settings, model: Model) -> Model:
    given.only("use_sliding_window", False)
    given.only("sliding_window", None, given.given.get("sliding_window"))
    types = given.texts("layer_types", None) or []
    given.only("layer_types", None, ["full_attention"] * len(types))
    return {}


def _qwen2(given: Settings, model: Model) -> Model:
    return _without_window(given, model) | {"qkv_bias": True}


def _out(given: Settings, model: Model) -> Model:
    return {"norm_placement": "out"}


def _caps(given: Settings, model: Model, attention: float | None, final: float | None) -> dict[str, Any]:
    scalar = given.number("query_pre_attn_scalar", 256)
    return options(
        attention={
            "softcap": given.maybe_number("attn_logit_softcapping", attention),
            "multiplier": None if scalar == model["head_dim"] else scalar**-0.5,
        },
        head={"softcap": given.maybe_number("final_logit_softcapping", final)},
    )


def _caps_back(model: Mapping[str, Any]) -> dict[str, Any]:
    multiplier = option(model, "attention", "multiplier")
    head_dim = model.get("head_dim") or model["emb_dim"] // model["n_heads"]
    return {
        "query_pre_attn_scalar": head_dim if multiplier is None else multiplier**-2,
        "attn_logit_softcapping": option(model, "attention", "softcap"),
        "final_logit_softcapping": option(model, "head", "softcap"),
    }


def _gemma(given: Settings, model: Model, period: int) -> Model:
    """What Gemma 2 and 3 share: sandwiched norms, scaled embeddings, some layers that see a window."""
    given.only("use_bidirectional_attention", None, False)
    n_layers = model["n_layers"]
    usual = ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(n_layers)]
    types = given.texts("layer_types", usual) or usual
    given.only("layer_types", None, [kind for kind in types if kind in ("sliding_attention", "full_attention")])
    window = {"options": {"attention": {"window": given.whole("sliding_window", 4096)}}}
    return {
        "norm_placement": "sandwich", "embedding_scale": "sqrt_dim",
        "pattern": turns(types[:n_layers], {"sliding_attention": window, "full_attention": {}}),
    }  # fmt: skip


def _gemma2(given: Settings, model: Model) -> Model:
    return _gemma(given, model, 2) | {"options": _caps(given, model, 50.0, 30.0)}


def _gemma3(given: Settings, model: Model) -> Model:
    node = given.node("rope_parameters")
    if not node:
        node = {
            "sliding_attention": {"rope_theta": given.number("rope_local_base_freq", 1e4)},
            "full_attention": {"rope_theta": given.number("rope_theta", 1e6), **given.node("rope_scaling")},
        }
    local = of_node(node.get("sliding_attention", {}), given.where, None, 1e4)
    wide = of_node(node.get("full_attention", {}), given.where, None, 1e6)
    found = _gemma(given, model, int(given.maybe_whole("sliding_window_pattern", 6) or 6))
    if "full_attention" in found["pattern"]["kinds"]:
        found["pattern"]["kinds"]["full_attention"] = {"options": {"position": wide}}
    slots = _caps(given, model, None, None)
    return found | {"options": {**slots, "position": local}}


def _gemma_back(model: Mapping[str, Any]) -> dict[str, Any]:
    windows = [option(layer, "attention", "window") for layer in per_layer(model)]
    types = ["full_attention" if window is None else "sliding_attention" for window in windows]
    given = [window for window in windows if window is not None]
    return _caps_back(model) | {"layer_types": types, "sliding_window": given[0] if given else 4096}


def _gemma3_back(model: Mapping[str, Any]) -> dict[str, Any]:
    layers = per_layer(model)
    local = next((x for x in layers if option(x, "attention", "window") is not None), model)
    wide = next((x for x in layers if option(x, "attention", "window") is None), model)
    rope = {"sliding_attention": rope_parameters(local), "full_attention": rope_parameters(wide)}
    return _gemma_back(model) | {"rope_parameters": rope}


def _nope(given: Settings, model: Model) -> Model:
    """SmolLM3: every fourth layer sees no positions."""
    period, n_layers = given.maybe_whole("no_rope_layer_interval", 4) or 4, model["n_layers"]
    usual = [int((i + 1) % period != 0) for i in range(n_layers)]
    kinds = ["rope" if turned else "nope" for turned in (given.texts("no_rope_layers", usual) or usual)]
    return _without_window(given, model) | {
        "pattern": turns(kinds[:n_layers], {"rope": {}, "nope": {"position": "none"}})
    }


def _nope_back(model: Mapping[str, Any]) -> dict[str, Any]:
    return {"no_rope_layers": [int(layer["position"] == "rope") for layer in per_layer(model)], "layer_types": None}


def _granite(given: Settings, model: Model) -> Model:
    scale = given.number("residual_multiplier", 1.0)
    return {
        "embedding_multiplier": given.number("embedding_multiplier", 1.0),
        **({} if scale == 1.0 else {"shortcut": "scaled"}),
        "options": options(
            attention={"multiplier": given.number("attention_multiplier", 1.0)},
            shortcut={"scale": None if scale == 1.0 else scale},
            head={"scale": 1 / given.number("logits_scaling", 1.0)},
        ),
    }


def _granite_back(model: Mapping[str, Any]) -> dict[str, Any]:
    head_dim = model.get("head_dim") or model["emb_dim"] // model["n_heads"]
    return {
        "embedding_multiplier": model["embedding_multiplier"],
        "attention_multiplier": option(model, "attention", "multiplier", head_dim**-0.5),
        "residual_multiplier": option(model, "shortcut", "scale", 1.0) if model["shortcut"] == "scaled" else 1.0,
        "logits_scaling": 1 / option(model, "head", "scale", 1.0),
    }


_BIASED = ("attention_bias", "mlp_bias")
LINES = (
    Line("llama", "LlamaForCausalLM", 32000, 4096, 11008, 32, 32, 2048, biases=_BIASED),
    Line("mistral", "MistralForCausalLM", 32000, 4096, 14336, 32, 32, 131072, kv_heads=8,
         extra=_window, extra_back=_window_back),
    Line("qwen2", "Qwen2ForCausalLM", 151936, 4096, 22016, 32, 32, 32768, kv_heads=32, extra=_qwen2),
    Line("qwen3", "Qwen3ForCausalLM", 151936, 4096, 22016, 32, 32, 32768, kv_heads=32, head_dim=128, qk_norm="rms",
         biases=("attention_bias",), extra=_without_window),
    Line("olmo2", "Olmo2ForCausalLM", 50304, 4096, 11008, 32, 32, 2048, eps=1e-5, qk_norm="rms_full", norms=_OUT,
         biases=("attention_bias",), extra=_out),
    Line("smollm3", "SmolLM3ForCausalLM", 128256, 2048, 11008, 36, 16, 32768, kv_heads=4, base=2e6, tied=True,
         biases=_BIASED, extra=_nope, extra_back=_nope_back),
    Line("granite", "GraniteForCausalLM", 32000, 4096, 11008, 32, 32, 2048, biases=_BIASED,
         extra=_granite, extra_back=_granite_back),
    Line("gemma2", "Gemma2ForCausalLM", 256000, 2304, 9216, 26, 8, 8192, kv_heads=4, head_dim=256, tied=True,
         norms=_SANDWICH, biases=("attention_bias",), extra=_gemma2, extra_back=_gemma_back, from_one=True,
         act="hidden_activation"),
    Line("gemma3_text", "Gemma3ForCausalLM", 262208, 2304, 9216, 26, 8, 131072, kv_heads=4, head_dim=256, tied=True,
         qk_norm="rms", norms=_SANDWICH, biases=("attention_bias",), extra=_gemma3, extra_back=_gemma3_back,
         from_one=True, act="hidden_activation"),
)  # fmt: skip


def _family(line: Line) -> Family:
    return Family(
        line.name,
        line.class_name,
        "model.",
        lambda given: _model(line, given),
        lambda model: _config(line, model),
        lambda model: _pieces(line, model),
        dropped={"rotary_emb.inv_freq": "a table that follows from the config"},
    )


FAMILIES = tuple(map(_family, LINES))
