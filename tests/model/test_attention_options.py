"""Gates and sinks of attention: outputs and gradients of the published modules with the same weights, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.diffllama.configuration_diffllama import DiffLlamaConfig
from transformers.models.diffllama.modeling_diffllama import DiffLlamaAttention
from transformers.models.gpt_oss.configuration_gpt_oss import GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention
from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention

from gptlab.errors import ConfigError
from gptlab.model.attention import MultiHeadAttention
from gptlab.model.attentions.differential import DifferentialAttention
from tests.support.doubled import doubled
from tests.support.refusals import refused

T, DIM, HEADS, KV_HEADS, HEAD_DIM = 7, 24, 6, 2, 6
SIZES: dict[str, Any] = {
    "hidden_size": DIM, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
    "num_hidden_layers": 1, "attn_implementation": "eager", "attention_dropout": 0.0,
}  # fmt: skip
MASK = torch.full((T, T), -torch.inf, dtype=torch.float64).triu(1)[None, None]
NO_TURN = torch.ones(1, T, HEAD_DIM, dtype=torch.float64), torch.zeros(1, T, HEAD_DIM, dtype=torch.float64)

HALVES = NO_TURN[0][..., : HEAD_DIM // 2], NO_TURN[1][..., : HEAD_DIM // 2]  # one number for each pair of features


def randn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def attention(**options: Any) -> MultiHeadAttention:
    """Every weight random, those that start at zero or one too."""
    with torch.random.fork_rng():
        layer = MultiHeadAttention(DIM, HEADS, KV_HEADS, head_dim=HEAD_DIM, **options).double()
    with torch.no_grad():
        for number, parameter in enumerate(layer.parameters()):
            parameter.copy_(randn(*parameter.shape, seed=number + 10) / 2)
    return layer


def projections(ours: MultiHeadAttention, theirs: nn.Module) -> list[tuple[nn.Parameter, nn.Parameter]]:
    pairs = [("W_query", "q_proj"), ("W_key", "k_proj"), ("W_value", "v_proj"), ("out_proj", "o_proj")]
    found = []
    for mine, other in pairs:
        for kind in ("weight", "bias"):
            if getattr(ours.get_submodule(mine), kind) is not None:
                found.append((getattr(ours.get_submodule(mine), kind), getattr(theirs.get_submodule(other), kind)))
    return found


def outputs_and_gradients(layer: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
    """What it gives for one input, and the gradient of that; gradients of its parameters stay with them."""
    x = randn(2, T, DIM, seed=2).requires_grad_()
    y = layer(x, *arguments)
    y = y[0] if isinstance(y, tuple) else y
    (y * randn(*y.shape, seed=3)).sum().backward()
    assert x.grad is not None
    return y.detach(), x.grad


def assert_equal(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_sinks_are_those_of_gpt_oss() -> None:
    ours = attention(sinks=True, qkv_bias=True)
    with doubled(), torch.random.fork_rng():
        theirs = GptOssAttention(GptOssConfig(**SIZES, attention_bias=True), 0).double().eval()
        pairs = [*projections(ours, theirs), (ours.sinks, theirs.sinks)]
        with torch.no_grad():
            for mine, other in pairs:
                other.copy_(mine)
        expected = outputs_and_gradients(theirs, HALVES, MASK)
    assert_equal(outputs_and_gradients(ours), expected)
    assert_equal(tuple(mine.grad for mine, _ in pairs), tuple(other.grad for _, other in pairs))
    assert {id(mine) for mine, _ in pairs} == {id(parameter) for parameter in ours.parameters()}


def test_the_elementwise_gate_is_that_of_qwen3_next() -> None:
    ours = attention(gate="elementwise", qk_norm="rms", attention_bias=False)
    with doubled(), torch.random.fork_rng():
        config = Qwen3NextConfig(**SIZES, attention_bias=False, rms_norm_eps=1e-5)
        theirs = Qwen3NextAttention(config, 0).double().eval()
        with torch.no_grad():
            for mine, other in projections(ours, theirs)[1:]:
                other.copy_(mine)
            both = torch.cat([w.weight.view(HEADS, HEAD_DIM, DIM) for w in (ours.W_query, ours.W_gate)], dim=1)
            theirs.q_proj.weight.copy_(both.flatten(0, 1))  # head by head, query and gate
            theirs.q_norm.weight.copy_(ours.query_norm.scale - 1)  # theirs counts from one
            theirs.k_norm.weight.copy_(ours.key_norm.scale - 1)
        expected = outputs_and_gradients(theirs, NO_TURN, MASK)
    assert_equal(outputs_and_gradients(ours), expected)
    halves = theirs.q_proj.weight.grad.view(HEADS, 2, HEAD_DIM, DIM)
    assert_equal((ours.W_query.weight.grad, ours.W_gate.weight.grad), tuple(h.flatten(0, 1) for h in halves.unbind(1)))


def test_a_headwise_gate_is_an_elementwise_one_with_equal_rows() -> None:
    one, each = attention(gate="headwise"), attention(gate="elementwise")
    with torch.no_grad():
        each.load_state_dict(one.state_dict() | {"W_gate.weight": one.W_gate.weight.repeat_interleave(HEAD_DIM, 0)})
    assert_equal(outputs_and_gradients(one), outputs_and_gradients(each))
    assert one.W_gate.weight.shape == (HEADS, DIM)


def test_an_open_gate_and_a_sink_far_below_change_nothing() -> None:
    plain = attention()
    for options, name, value in (({"sinks": True}, "sinks", -1e9), ({"gate": "elementwise"}, "W_gate.weight", 0.0)):
        changed = attention(**options)
        left = changed.load_state_dict(plain.state_dict(), strict=False)
        assert left.missing_keys == [name]
        with torch.no_grad():
            changed.get_parameter(name).fill_(value)
            if name != "sinks":  # half open everywhere: the projection, which has a bias, takes twice as much
                changed.out_proj.weight.mul_(2)
        torch.testing.assert_close(changed(randn(2, T, DIM)), plain(randn(2, T, DIM)), rtol=0, atol=1e-12)


def test_weights_beside_a_sink_sum_to_less_than_one() -> None:
    layer = attention(sinks=True)
    logits = layer.attention_logits(randn(2, T, DIM))
    assert logits.shape == (2, HEADS, T, T + 1)
    assert torch.equal(logits[..., -1], layer.sinks[:, None].expand(2, HEADS, T))
    plain = layer.logits(*layer.queries_keys_values(randn(2, T, DIM))[:2])[..., :-1]
    share = logits.softmax(-1)[..., :-1].sum(-1)
    expected = 1 - layer.sinks.exp()[:, None] / (layer.sinks.exp()[:, None] + plain.exp().sum(-1))
    torch.testing.assert_close(share, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"gate": "headwse"}, "unknown-name"),
        ({"sinks": True, "implementation": "sdpa"}, "sinks-with-sdpa"),
        ({"multiplier": 0.0}, "attention-multiplier"),
        ({"multiplier": 0.3, "scale": "learned"}, "multiplier-with-scale"),
        ({"multiplier": 0.3, "qk_norm": "l2"}, "multiplier-with-scale"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], code: str) -> None:
    with pytest.raises(ConfigError) as refused:
        attention(**options)
    assert refused.value.code == code


def test_differential_attention_is_that_of_diffllama() -> None:
    with torch.random.fork_rng():
        ours = DifferentialAttention(
            DIM, HEADS, 3, KV_HEADS, head_dim=HEAD_DIM, attention_bias=False, eps=3e-4
        ).double()
    with torch.no_grad():
        for number, parameter in enumerate(ours.parameters()):
            parameter.copy_(randn(*parameter.shape, seed=number + 10) / 2)
    with doubled(), torch.random.fork_rng():
        theirs = DiffLlamaAttention(DiffLlamaConfig(**SIZES, rms_norm_eps=3e-4), 3).double().eval()
        vectors = [(getattr(ours, n), getattr(theirs, n)) for n in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")]
        pairs = [*projections(ours, theirs), *vectors]
        with torch.no_grad():
            for mine, other in pairs:
                other.copy_(mine)
        expected = outputs_and_gradients(theirs, NO_TURN, MASK)
    assert_equal(outputs_and_gradients(ours), expected)
    assert_equal(tuple(mine.grad for mine, _ in pairs), tuple(other.grad for _, other in pairs))
    assert {id(mine) for mine, _ in pairs} == {id(parameter) for parameter in ours.parameters()}


def test_differential_heads_are_pairs() -> None:
    for heads, kv_heads in ((3, None), (6, 3)):
        with refused("heads-in-pairs", value=3):
            DifferentialAttention(24, heads, n_kv_heads=kv_heads)
