"""Decoding step by step gives the logits of one pass; states can be reordered and cropped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gptlab.config import Config, ModelConfig
from gptlab.model import GPT, build
from gptlab.model.decoding import Decoding, KeyValues, Ring
from tests.support.refusals import refused

SMALL = ModelConfig(vocab_size=61, context_length=16, emb_dim=24, n_heads=3, n_layers=2)
VARIANTS: list[dict[str, Any]] = [
    {},
    {"position": "rope"},
    {"position": "alibi"},
    {"position": "sinusoidal", "n_kv_heads": 1},
    {"position": "rope", "options": {"attention": {"window": 4, "qk_norm": "rms"}}},
    {"position": "alibi", "options": {"attention": {"window": 1}}},
    {"options": {"attention": {"softcap": 5.0, "scale": "learned"}}},
    {"options": {"attention": {"gate": "headwise", "sinks": True, "window": 4}}},
    {"attention": "differential", "n_heads": 4, "n_kv_heads": 2, "position": "rope"},
    {"layout": "parallel", "norm_placement": "post"},
    {"layout": "attention_only", "layers": {"0": {"layout": "feed_forward_only"}}},
    {"attention": "identity"},
    {"options": {"attention": {"value_residual": "learned", "value_embedding": True}}, "position": "rope"},
    {"attention": "shared_keys_values", "n_layers": 4, "options": {"attention": {"every": 3}}, "position": "rope"},
    {"attention": "shared_keys_values", "options": {"attention": {"window": 4}}, "n_kv_heads": 1},
    {"attention": "latent", "position": "rope", "options": {"attention": {"query_latent": 7, "value_dim": 5}}},
    {"attention": "latent", "position": "alibi", "options": {"attention": {"window": 4}}},
    {"options": {"block": {"canon_attention": True, "canon_feed_forward": True}}, "layout": "parallel"},
    {"skip": "halves", "n_layers": 3, "loops": 2},
    {"skip": "first_embeddings", "position": "alibi"},
]


def make(**changes: Any) -> GPT:
    model = build(Config(model=replace(SMALL, **changes)))
    assert isinstance(model, GPT)
    return model.double()


def ids(batch: int = 3, length: int = 14) -> Tensor:
    return torch.randint(61, (batch, length), generator=torch.Generator().manual_seed(1))


def decoded(model: GPT, tokens: Tensor, decoding: Decoding, sizes: list[int]) -> tuple[Tensor, Decoding]:
    found = []
    for part in tokens.split(sizes, dim=1):
        output = model.run(part, decoding)
        assert output.decoding is not None
        decoding = output.decoding
        found.append(model.out_head(output.features))
    return torch.cat(found, dim=1), decoding


@torch.no_grad()
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
@pytest.mark.parametrize("sizes", [[1] * 14, [5, 1, 1, 4, 3], [14]], ids=str)
def test_steps_give_the_logits_of_one_pass(changes: dict[str, Any], sizes: list[int]) -> None:
    model, tokens = make(**changes), ids()
    found, decoding = decoded(model, tokens, model.start_decoding(3), sizes)
    torch.testing.assert_close(found, model(tokens), rtol=1e-12, atol=1e-12)
    assert decoding.length == 14


@torch.no_grad()
def test_rows_are_chosen_anew() -> None:
    model, tokens, rows = make(position="rope"), ids(), torch.tensor([2, 0, 0, 1])
    _, decoding = decoded(model, tokens[:, :9], model.start_decoding(3), [9])
    found, _ = decoded(model, tokens[rows, 9:], decoding.reordered(rows), [1] * 5)
    torch.testing.assert_close(found, model(tokens[rows])[:, 9:], rtol=1e-12, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_rows_can_join_later(changes: dict[str, Any]) -> None:
    model, tokens = make(**changes), ids()
    _, early = decoded(model, tokens[:1, :9], model.start_decoding(1), [2] * 4 + [1])
    _, late = decoded(model, tokens[1:, :9], model.start_decoding(2), [9])
    found, _ = decoded(model, tokens[:, 9:], early.joined(late), [1, 3, 1])
    torch.testing.assert_close(found, model(tokens)[:, 9:], rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_a_window_is_a_ring() -> None:
    """Its memory is that of the window, whatever has passed; it goes back only where nothing was replaced."""
    model, tokens = make(options={"attention": {"window": 4}}), ids()
    _, decoding = decoded(model, tokens, model.start_decoding(3), [3, 1, 5, 1, 1, 3])
    ring = decoding.blocks[0]["att"]
    assert isinstance(ring, Ring) and ring.keys is not None and ring.keys.shape == (3, 3, 4, 8)
    with refused("decoding-cannot-go-back", seen=14, value=13):
        decoding.cropped(13)
    _, short = decoded(model, tokens[:, :4], model.start_decoding(3), [4])
    found, _ = decoded(model, tokens[:, 2:], short.cropped(2), [1] * 12)
    torch.testing.assert_close(found, model(tokens)[:, 2:], rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_a_step_writes_into_the_memory_that_is_there() -> None:
    model, tokens = make(), ids()
    _, decoding = decoded(model, tokens[:, :5], model.start_decoding(3), [5])
    before = decoding.blocks[0]["att"]
    _, after = decoded(model, tokens[:, 5:], decoding, [1] * 9)
    then = after.blocks[0]["att"]
    assert isinstance(before, KeyValues) and isinstance(then, KeyValues)
    assert before.keys is not None and then.keys is not None and before.keys.data_ptr() == then.keys.data_ptr()


@torch.no_grad()
def test_it_can_go_back() -> None:
    model, tokens = make(position="alibi"), ids()
    other = tokens.clone()
    other[:, 6:] = (other[:, 6:] + 1) % 61
    _, decoding = decoded(model, tokens, model.start_decoding(3), [14])
    found, again = decoded(model, other[:, 6:], decoding.cropped(6), [1, 7])
    torch.testing.assert_close(found, model(other)[:, 6:], rtol=1e-12, atol=1e-12)
    with refused("decoding-cannot-go-back", seen=14, value=15):
        again.cropped(15)


def test_what_cannot_be_decoded_is_refused() -> None:
    with refused("decoding-without-mask", key="model.causal"):
        make(causal=False).start_decoding(1)
    model = make()
    decoding = model.start_decoding(3, capacity=4)
    with refused("decoding-room", value=5, allowed=4):
        decoded(model, ids(), decoding, [5, 9])
    with pytest.raises(ValueError, match="context_length=16"):
        decoded(model, ids(length=17), model.start_decoding(3), [16, 1])


def test_a_bf16_model_keeps_bf16_keys() -> None:
    model = make().bfloat16()
    output = model.run(ids(), model.start_decoding(3))
    assert output.decoding is not None
    assert output.decoding.blocks[0]["att"].keys.dtype == torch.bfloat16  # type: ignore[attr-defined]
