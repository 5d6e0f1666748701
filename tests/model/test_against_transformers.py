"""The whole forward pass against Hugging Face's models of the same families, on tiny random weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import transformers

from gptlab.config import Config, ModelConfig
from gptlab.model import build

SMALL = ModelConfig(vocab_size=61, context_length=12, emb_dim=24, n_heads=3, n_layers=3)


@pytest.mark.parametrize("tie", [True, False])
def test_forward_is_transformers_gpt2_with_the_same_weights(tie: bool) -> None:
    config = transformers.GPT2Config(
        vocab_size=61,
        n_positions=12,
        n_embd=24,
        n_layer=3,
        n_head=3,
        tie_word_embeddings=tie,
        layer_norm_epsilon=3e-4,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    with torch.random.fork_rng():
        theirs = transformers.GPT2LMHeadModel(config).eval()
    options = {"norm": {"eps": 3e-4}}
    ours = away_from_ones(
        build(Config(model=replace(SMALL, qkv_bias=True, tie_weights=tie, init="gpt2", options=options)))
    )
    state = dict(ours.named_parameters())
    with torch.no_grad():
        theirs.transformer.wte.weight.copy_(state["tok_emb.weight"])
        theirs.transformer.wpe.weight.copy_(state["pos_emb.weight"])
        theirs.lm_head.weight.copy_(ours.out_head.weight)
        theirs.transformer.ln_f.weight.copy_(state["final_norm.scale"])
        theirs.transformer.ln_f.bias.copy_(state["final_norm.shift"])
        for i, block in enumerate(theirs.transformer.h):
            at = f"trf_blocks.{i}."
            for theirs_norm, our_norm in ((block.ln_1, "norm1"), (block.ln_2, "norm2")):
                theirs_norm.weight.copy_(state[f"{at}{our_norm}.scale"])
                theirs_norm.bias.copy_(state[f"{at}{our_norm}.shift"])
            for kind in ("weight", "bias"):  # their Conv1D is transposed
                qkv = torch.cat([state[f"{at}att.W_{n}.{kind}"] for n in ("query", "key", "value")])
                getattr(block.attn.c_attn, kind).copy_(qkv.t())
                getattr(block.attn.c_proj, kind).copy_(state[f"{at}att.out_proj.{kind}"].t())
                getattr(block.mlp.c_fc, kind).copy_(state[f"{at}ff.layers.0.{kind}"].t())
                getattr(block.mlp.c_proj, kind).copy_(state[f"{at}ff.layers.2.{kind}"].t())
    ids = torch.randint(61, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, rtol=0, atol=2e-6)


FAMILY = {"vocab_size": 61, "context_length": 16, "emb_dim": 24, "n_heads": 6, "n_layers": 3, "drop_rate": 0.0}
NO_BIAS = {"attention_bias": False, "feed_forward_bias": False}


def ids(length: int = 11) -> torch.Tensor:
    return torch.randint(61, (2, length), generator=torch.Generator().manual_seed(0))


def away_from_ones(model: torch.nn.Module) -> torch.nn.Module:
    """Norm scales and biases away from ones and zeros, so that a misplaced one shows."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                torch.nn.init.uniform_(parameter, 0.5, 1.5, generator=torch.Generator().manual_seed(len(name)))
    return model


def ours(**changes: object) -> torch.nn.Module:
    return away_from_ones(build(Config(model=ModelConfig(**FAMILY, init="gpt2", **changes))))


def theirs(config: object, kind: str) -> torch.nn.Module:
    with torch.random.fork_rng():
        return getattr(transformers, kind)(config).eval()


def load(model: torch.nn.Module, state: dict[str, torch.Tensor]) -> None:
    """Load every parameter of theirs, and miss none."""
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert {name for name in missing if name in dict(model.named_parameters())} == set()


def llama_names(model: torch.nn.Module, inner: dict[str, str]) -> dict[str, torch.Tensor]:
    state = dict(model.named_parameters())
    theirs = {"model.embed_tokens.weight": state["tok_emb.weight"], "model.norm.weight": state["final_norm.scale"]}
    theirs["lm_head.weight"] = model.out_head.weight
    for i in range(len(model.trf_blocks)):
        for their_name, our_name in inner.items():
            theirs[f"model.layers.{i}.{their_name}.weight"] = state[f"trf_blocks.{i}.{our_name}"]
    return theirs


LLAMA_BLOCK = {
    "self_attn.q_proj": "att.W_query.weight",
    "self_attn.k_proj": "att.W_key.weight",
    "self_attn.v_proj": "att.W_value.weight",
    "self_attn.o_proj": "att.out_proj.weight",
    "mlp.gate_proj": "ff.gate.weight",
    "mlp.up_proj": "ff.value.weight",
    "mlp.down_proj": "ff.out.weight",
}


@pytest.mark.parametrize("n_kv_heads", [6, 2, 1])
def test_llama(n_kv_heads: int) -> None:
    model = ours(
        norm="rmsnorm", feed_forward="swiglu", expansion=8 / 3, position="rope", n_kv_heads=n_kv_heads,
        options={"norm": {"eps": 3e-4}, "position": {"base": 777.0}}, **NO_BIAS,
    )  # fmt: skip
    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=24, intermediate_size=64, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=n_kv_heads, max_position_embeddings=16, rms_norm_eps=3e-4, use_cache=False,
        rope_theta=777.0, rope_parameters={"rope_type": "default", "rope_theta": 777.0},
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    other = theirs(config, "LlamaForCausalLM")
    norms = {"input_layernorm": "norm1.scale", "post_attention_layernorm": "norm2.scale"}
    load(other, llama_names(model, LLAMA_BLOCK | norms))
    with torch.no_grad():
        torch.testing.assert_close(model(ids()), other(ids()).logits, rtol=0, atol=5e-6)


def test_olmo2() -> None:
    model = ours(
        norm="rmsnorm", norm_placement="out", feed_forward="swiglu", expansion=8 / 3, position="rope",
        options={"attention": {"qk_norm": "rms_full"}, "norm": {"eps": 3e-4}, "position": {"base": 777.0}}, **NO_BIAS,
    )  # fmt: skip
    config = transformers.Olmo2Config(
        vocab_size=61, hidden_size=24, intermediate_size=64, num_hidden_layers=3, num_attention_heads=6,
        max_position_embeddings=16, rms_norm_eps=3e-4, rope_theta=777.0, use_cache=False,
        rope_parameters={"rope_type": "default", "rope_theta": 777.0},
        bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    other = theirs(config, "Olmo2ForCausalLM")
    norms = {"post_attention_layernorm": "norm1_output.scale", "post_feedforward_layernorm": "norm2_output.scale"}
    norms |= {"self_attn.q_norm": "att.query_norm.scale", "self_attn.k_norm": "att.key_norm.scale"}
    load(other, llama_names(model, LLAMA_BLOCK | norms))
    with torch.no_grad():
        torch.testing.assert_close(model(ids()), other(ids()).logits, rtol=0, atol=5e-6)


def test_gpt_j() -> None:
    model = ours(
        layout="parallel", position="rope", attention_bias=False,
        options={"position": {"pairing": "interleaved"}, "norm": {"eps": 3e-4}},
    )  # fmt: skip
    config = transformers.GPTJConfig(
        vocab_size=61, n_positions=16, n_embd=24, n_layer=3, n_head=6, rotary_dim=4, use_cache=False,
        layer_norm_epsilon=3e-4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    other = theirs(config, "GPTJForCausalLM")
    state = dict(model.named_parameters())
    names = {"transformer.wte.weight": "tok_emb.weight", "lm_head.weight": "out_head.weight"}
    names |= {"transformer.ln_f.weight": "final_norm.scale", "transformer.ln_f.bias": "final_norm.shift"}
    for i in range(3):
        inner = {
            f"attn.{a}_proj.weight": f"att.W_{b}.weight" for a, b in zip("qkv", ("query", "key", "value"), strict=True)
        }
        inner |= {"attn.out_proj.weight": "att.out_proj.weight"}
        inner |= {"ln_1.weight": "norm1.scale", "ln_1.bias": "norm1.shift"}
        inner |= {f"mlp.fc_in.{kind}": f"ff.layers.0.{kind}" for kind in ("weight", "bias")}
        inner |= {f"mlp.fc_out.{kind}": f"ff.layers.2.{kind}" for kind in ("weight", "bias")}
        names |= {f"transformer.h.{i}.{a}": f"trf_blocks.{i}.{b}" for a, b in inner.items()}
    load(other, {a: state[b] for a, b in names.items()} | {"lm_head.bias": torch.zeros(61)})
    with torch.no_grad():
        torch.testing.assert_close(model(ids()), other(ids()).logits, rtol=0, atol=5e-6)


def test_bloom() -> None:
    model = ours(
        position="alibi", qkv_bias=True, options={"norm": {"eps": 3e-4}}
    )  # Bloom has a norm on the embeddings, made the identity here
    config = transformers.BloomConfig(
        vocab_size=61, hidden_size=24, n_layer=3, n_head=6, use_cache=False, bos_token_id=0, eos_token_id=0,
        layer_norm_epsilon=3e-4, tie_word_embeddings=False, hidden_dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    other = theirs(config, "BloomForCausalLM")
    other.transformer.word_embeddings_layernorm = torch.nn.Identity()
    state = dict(model.named_parameters())
    mapped = {"transformer.word_embeddings.weight": state["tok_emb.weight"], "lm_head.weight": state["out_head.weight"]}
    mapped |= {f"transformer.ln_f.{a}": state[f"final_norm.{b}"] for a, b in (("weight", "scale"), ("bias", "shift"))}
    for i in range(3):
        at, to = f"trf_blocks.{i}.", f"transformer.h.{i}."
        for kind in ("weight", "bias"):
            qkv = torch.stack(
                [state[f"{at}att.W_{n}.{kind}"].unflatten(0, (6, 4)) for n in ("query", "key", "value")], 1
            )
            mapped[f"{to}self_attention.query_key_value.{kind}"] = qkv.flatten(0, 2)  # theirs goes head by head
            mapped[f"{to}self_attention.dense.{kind}"] = state[f"{at}att.out_proj.{kind}"]
            mapped[f"{to}mlp.dense_h_to_4h.{kind}"] = state[f"{at}ff.layers.0.{kind}"]
            mapped[f"{to}mlp.dense_4h_to_h.{kind}"] = state[f"{at}ff.layers.2.{kind}"]
        for a, b in (("weight", "scale"), ("bias", "shift")):
            mapped[f"{to}input_layernorm.{a}"] = state[f"{at}norm1.{b}"]
            mapped[f"{to}post_attention_layernorm.{a}"] = state[f"{at}norm2.{b}"]
    load(other, mapped)
    with torch.no_grad():
        torch.testing.assert_close(
            model(ids()), other(ids()).logits, rtol=0, atol=2e-5
        )  # their GELU is another tanh form


def test_the_norm_of_queries_and_keys_has_the_options_of_the_slot() -> None:
    """The published fault: queries and keys normed with another eps than the one that is declared."""
    for declared in (1e-6, 3e-2):
        config = ModelConfig(
            **FAMILY, norm="rmsnorm", options={"attention": {"qk_norm": "rms"}, "norm": {"eps": declared}}
        )
        attention = build(Config(model=config)).trf_blocks[0].att
        assert attention.query_norm.eps == attention.key_norm.eps == declared
    bare = build(Config(model=replace(config, options=config.options | {"norm": {"affine": False}})))
    assert not [name for name, _ in bare.named_parameters() if "query_norm" in name]
    mixed = ModelConfig(**FAMILY, options={"attention": {"qk_norm": "rms"}, "norm": {"bias": False, "eps": 3e-2}})
    assert build(Config(model=mixed)).trf_blocks[0].att.query_norm.eps == 3e-2  # bias is layernorm's alone
