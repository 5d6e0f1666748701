"""The whole forward pass against Hugging Face's GPT-2, on tiny random weights."""

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
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    with torch.random.fork_rng():
        theirs = transformers.GPT2LMHeadModel(config).eval()
    ours = build(Config(model=replace(SMALL, qkv_bias=True, tie_weights=tie, init="gpt2")))
    state = dict(ours.named_parameters())
    with torch.no_grad():
        theirs.transformer.wte.weight.copy_(state["tok_emb.weight"])
        theirs.transformer.wpe.weight.copy_(state["pos_emb.weight"])
        theirs.lm_head.weight.copy_(ours.out_head.weight)
        for i, block in enumerate(theirs.transformer.h):
            at = f"trf_blocks.{i}."
            for kind in ("weight", "bias"):  # their Conv1D is transposed
                qkv = torch.cat([state[f"{at}att.W_{n}.{kind}"] for n in ("query", "key", "value")])
                getattr(block.attn.c_attn, kind).copy_(qkv.t())
                getattr(block.attn.c_proj, kind).copy_(state[f"{at}att.out_proj.{kind}"].t())
                getattr(block.mlp.c_fc, kind).copy_(state[f"{at}ff.layers.0.{kind}"].t())
                getattr(block.mlp.c_proj, kind).copy_(state[f"{at}ff.layers.2.{kind}"].t())
    ids = torch.randint(61, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, rtol=0, atol=2e-6)
