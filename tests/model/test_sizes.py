"""Sizes of their own: `hidden_dim`, `hidden_multiple` and `head_dim`, built, counted, checked and settled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

from gptlab.config import Config, ModelConfig
from gptlab.declare.composer import compose
from gptlab.identity import identity
from gptlab.model import build
from gptlab.model.feed_forward import hidden_width
from tests.support.refusals import refused

TINY = ["model=tiny", "data=random_tokens"]
LLAMA = ModelConfig(
    vocab_size=61, context_length=16, emb_dim=24, n_heads=4, n_kv_heads=1, n_layers=2, norm="rmsnorm",
    feed_forward="swiglu", position="rope", attention_bias=False, feed_forward_bias=False, init="gpt2",
    hidden_dim=37, head_dim=10,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("manual", [False, True])
def test_llama_with_heads_and_hidden_layer_of_their_own_width(manual: bool) -> None:
    options = {"attention": {"implementation": "manual"}} if manual else {}
    model = build(Config(model=replace(LLAMA, options=options))).eval()
    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=24, intermediate_size=37, num_hidden_layers=2, num_attention_heads=4, head_dim=10,
        num_key_value_heads=1, max_position_embeddings=16, rms_norm_eps=1e-5, use_cache=False, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    with torch.random.fork_rng():
        theirs = transformers.LlamaForCausalLM(config).eval()
    state = dict(model.named_parameters())
    pairs = {"self_attn.q_proj": "att.W_query.weight", "self_attn.k_proj": "att.W_key.weight"}
    pairs |= {"self_attn.v_proj": "att.W_value.weight", "self_attn.o_proj": "att.out_proj.weight"}
    pairs |= {"mlp.gate_proj": "ff.gate.weight", "mlp.up_proj": "ff.value.weight", "mlp.down_proj": "ff.out.weight"}
    pairs |= {"input_layernorm": "norm1.scale", "post_attention_layernorm": "norm2.scale"}
    names = {"model.embed_tokens": "tok_emb.weight", "model.norm": "final_norm.scale", "lm_head": "out_head.weight"}
    names |= {f"model.layers.{i}.{a}": f"trf_blocks.{i}.{b}" for i in range(2) for a, b in pairs.items()}
    theirs.load_state_dict({f"{a}.weight": state[b] for a, b in names.items()})
    ids = torch.arange(32).view(2, 16)
    with torch.no_grad():
        torch.testing.assert_close(model(ids), theirs(ids).logits, rtol=0, atol=5e-6)
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in theirs.parameters())


@pytest.mark.parametrize("feed_forward", ["mlp", "glu", "geglu", "swiglu", "reglu", "bilinear"])
def test_parameters_of_every_feed_forward_layer(feed_forward: str) -> None:
    model = ModelConfig(
        vocab_size=7, context_length=4, emb_dim=6, n_heads=2, n_layers=1, feed_forward=feed_forward, hidden_dim=11
    )
    count = sum(p.numel() for p in build(Config(model=model)).trf_blocks[0].ff.parameters())
    gates = 1 if feed_forward == "mlp" else 2
    assert count == gates * (6 * 11 + 11) + 11 * 6 + 6


@pytest.mark.parametrize(
    ("expansion", "multiple", "width"), [(8 / 3, None, 64), (8 / 3, 10, 70), (8 / 3, 64, 64), (0.01, 8, 8), (4, 1, 96)]
)
def test_rounding_goes_up_to_a_multiple(expansion: float, multiple: int | None, width: int) -> None:
    assert hidden_width(24, expansion, None, multiple) == width


def test_llama_s_own_numbers() -> None:
    assert hidden_width(4096, 8 / 3, None, 256) == 11008  # Llama 1 and 2 with 7B


def test_sizes_per_layer() -> None:
    config = compose([*TINY, "model.layers.1.hidden_dim=10", "model.layers.0.head_dim=3"])
    blocks = build(config).trf_blocks
    first = compose(TINY).model
    assert [block.ff.layers[0].out_features for block in blocks] == [4 * first.emb_dim, 10]
    assert blocks[0].att.W_query.out_features == 3 * first.n_heads
    assert blocks[1].att.W_query.out_features == first.emb_dim


def test_new_sizes_leave_old_runs_themselves() -> None:
    plain = compose(TINY)
    width, head = 4 * plain.model.emb_dim, plain.model.emb_dim // plain.model.n_heads
    for said in (f"model.hidden_dim={width}", f"model.head_dim={head}", "model.hidden_multiple=2"):
        assert identity(compose([*TINY, said])) == identity(plain)
    assert identity(compose([*TINY, "model.hidden_dim=5"])) != identity(plain)
    assert identity(compose([*TINY, "model.head_dim=2"])) != identity(plain)


def test_an_expansion_of_the_preset_gives_way_and_one_that_is_typed_is_refused() -> None:
    tiny = ["model=llama_tiny", "data=random_tokens"]
    assert compose([*tiny, "model.hidden_dim=50"]).model.expansion == ModelConfig().expansion
    for other in ("expansion=2", "hidden_multiple=8"):
        with refused("model-key-unread", key=f"model.{other.split('=')[0]}"):
            compose([*tiny, "model.hidden_dim=50", f"model.{other}"])


def test_heads_of_their_own_width_need_not_divide_the_stream() -> None:
    with refused("heads-divide", key="model.n_heads", value=3, emb_dim=32, suggestion=2):
        compose([*TINY, "model.n_heads=3"])
    assert compose([*TINY, "model.n_heads=3", "model.head_dim=4"]).model.head_dim == 4
    with refused("rope-odd-head", key="model.position", value="rope", head_dim=3):
        compose([*TINY, "model.position=rope", "model.head_dim=3"])


def test_sizes_that_nothing_reads_are_refused() -> None:
    for key, without in (("hidden_dim", "feed_forward"), ("head_dim", "attention")):
        with refused("model-key-unread", key=f"model.{key}", value=4):
            compose([*TINY, f"model.{without}=identity", f"model.{key}=4"])
