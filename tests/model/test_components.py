"""Each component against torch's own or a closed form."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gptlab.model.activations import gelu, gelu_tanh, relu, silu
from gptlab.model.attention import MultiHeadAttention
from gptlab.model.feed_forward import MLP, hidden_width
from gptlab.model.layers import Linear, uninitialised
from gptlab.model.norms import LayerNorm, RMSNorm
from gptlab.model.positions import LearnedPosition, NoPosition, SinusoidalPosition
from gptlab.model.shortcuts import Add, NoShortcut, Scaled
from tests.support.refusals import refused


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def fresh(factory: object, *args: object, **kwargs: object) -> nn.Module:
    with torch.random.fork_rng():
        return factory(*args, **kwargs)


def test_layernorm_is_torchs_and_uses_the_biased_variance() -> None:
    x = randn(4, 7, 24) * 3 + 1
    torch.testing.assert_close(LayerNorm(24)(x), nn.LayerNorm(24)(x), rtol=0, atol=2e-7)
    torch.testing.assert_close(LayerNorm(24, eps=0.0)(x).var(-1, unbiased=False), torch.ones(4, 7))
    assert torch.equal(LayerNorm(6)(torch.full((1, 6), 5.0)), torch.zeros(1, 6))


def test_layernorm_on_the_books_example() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(123)
        batch = torch.randn(2, 5)
        out = F.relu(nn.Linear(5, 6)(batch))
    expected = torch.tensor([0.674460, 1.546987, -0.954852, 0.643108, -0.954852, -0.954852])
    torch.testing.assert_close(LayerNorm(6)(out)[0], expected, rtol=0, atol=1e-6)


def test_rmsnorm_is_torchs_and_layernorm_of_centred_input() -> None:
    x = randn(4, 7, 24)
    torch.testing.assert_close(RMSNorm(24)(x), nn.RMSNorm(24, eps=1e-5)(x))
    torch.testing.assert_close(RMSNorm(24)(x - x.mean(-1, keepdim=True)), LayerNorm(24)(x))


def test_activations_by_their_formulas() -> None:
    x = torch.linspace(-6, 6, 24001, dtype=torch.float64)
    tanh_form = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    torch.testing.assert_close(gelu_tanh()(x), tanh_form)
    torch.testing.assert_close(gelu()(x), x * 0.5 * (1 + torch.erf(x / math.sqrt(2))))
    torch.testing.assert_close(relu()(x), x.clamp(min=0))
    torch.testing.assert_close(silu()(x), x / (1 + torch.exp(-x)))
    gap = (gelu_tanh()(x) - gelu()(x)).abs()
    assert gap.max().item() == pytest.approx(0.000473, abs=1e-6)
    assert abs(x[gap.argmax()].item()) == pytest.approx(2.70, abs=0.01)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_is_the_explicit_sum(causal: bool) -> None:
    attention = fresh(MultiHeadAttention, 24, 3, causal=causal, qkv_bias=True).double().eval()
    x = randn(2, 7, 24).double()
    heads = []
    for h in range(3):
        part = slice(8 * h, 8 * (h + 1))
        q, k, v = (f(x)[..., part] for f in (attention.W_query, attention.W_key, attention.W_value))
        scores = q @ k.transpose(1, 2) / math.sqrt(8)
        if causal:
            scores = scores.masked_fill(torch.ones(7, 7, dtype=torch.bool).triu(1), -torch.inf)
        heads.append(scores.softmax(-1) @ v)
    expected = attention.out_proj(torch.cat(heads, dim=-1))
    torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-14)


def test_unmasked_attention_is_permutation_equivariant_and_masked_is_not() -> None:
    order = torch.randperm(7, generator=torch.Generator().manual_seed(2))
    x = randn(1, 7, 24).double()
    for causal in (False, True):
        attention = fresh(MultiHeadAttention, 24, 3, causal=causal).double().eval()
        gap = (attention(x[:, order]) - attention(x)[:, order]).abs().max().item()
        assert (gap < 1e-12) is not causal


def test_attention_refuses_heads_that_do_not_divide() -> None:
    with refused("attention-heads-divide", key="model.n_heads", value=5, emb_dim=24):
        MultiHeadAttention(24, 5)


@pytest.mark.parametrize(
    ("dim", "expansion", "width"), [(768, 4, 3072), (768, 8 / 3, 2048), (8, 0.01, 1), (5, 0.5, 3), (5, 1.3, 7)]
)
def test_hidden_width_rounds_to_the_nearest(dim: int, expansion: float, width: int) -> None:
    assert hidden_width(dim, expansion) == width
    mlp = fresh(MLP, dim, nn.ReLU(), expansion)
    assert mlp.layers[0].weight.shape == (width, dim)
    assert mlp(randn(2, 3, dim)).shape == (2, 3, dim)


def test_mlp_without_nonlinearity_is_one_linear_map() -> None:
    mlp = fresh(MLP, 6, nn.Identity()).double()
    first, last = mlp.layers[0], mlp.layers[2]
    x = randn(2, 3, 6).double()
    collapsed = F.linear(x, last.weight @ first.weight, last.weight @ first.bias + last.bias)
    torch.testing.assert_close(mlp(x), collapsed)


@pytest.mark.parametrize("dim", [8, 7])
def test_sinusoids_are_vaswanis(dim: int) -> None:
    table = SinusoidalPosition(16, dim)(torch.zeros(1, 16, dim))
    for t in (0, 1, 15):
        for j in range(dim):
            angle = t / 10_000 ** (2 * (j // 2) / dim)
            assert table[t, j].item() == pytest.approx(math.cos(angle) if j % 2 else math.sin(angle), abs=1e-6)
    assert not SinusoidalPosition(16, dim).state_dict()


def test_learned_positions_are_the_first_rows() -> None:
    learned = fresh(LearnedPosition, 16, 8)
    assert torch.equal(learned(torch.zeros(2, 5, 8)), learned.weight[:5])
    assert NoPosition()(torch.zeros(2, 5, 8)) is None


def test_shortcuts_by_their_formulas() -> None:
    x, branch = randn(2, 3, 4), randn(2, 3, 4) * 2
    assert torch.equal(Add()(x, branch), x + branch)
    assert torch.equal(NoShortcut()(x, branch), branch)
    assert torch.equal(Scaled(0.25)(x, branch), x + 0.25 * branch)


def test_a_layer_on_its_own_starts_as_torchs_does() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        ours = Linear(3, 2)
        torch.manual_seed(4)
        torchs = nn.Linear(3, 2)
        state = torch.get_rng_state()
        with uninitialised():
            Linear(3, 2)
        assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(ours.weight, torchs.weight) and torch.equal(ours.bias, torchs.bias)


def test_a_norm_of_bf16_queries_computes_in_its_own_type() -> None:
    """Under autocast queries and keys come in bf16, and torch warns of two types (a warning is an error here)."""
    norm = RMSNorm(16)
    x = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert torch.equal(norm(x), norm(x.float()))
