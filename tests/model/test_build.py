"""Initial weights: the five promises of paired random numbers, and the plain global stream."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from gptlab import streams
from gptlab.config import Config, ModelConfig
from gptlab.model import build, skeleton
from gptlab.registry import register
from tests.support.book import book_gpt

SMALL = ModelConfig(vocab_size=61, context_length=12, emb_dim=24, n_heads=3, n_layers=3)
SIZES = (61, 12, 24, 3, 3)


def weights(seed: int = 123, rng: str = "paired", **changes: object) -> dict[str, Tensor]:
    model = build(Config(model=replace(SMALL, **changes), seed=seed, rng=rng))
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("rng", ["paired", "global"])
@pytest.mark.parametrize("seed", [0, 123, 2**63 - 1])
def test_reference_gets_the_books_weights_bit_for_bit(rng: str, seed: int) -> None:
    book = dict(book_gpt(seed, *SIZES).named_parameters())
    ours = weights(seed, rng)
    assert list(ours) == list(book)
    assert all(torch.equal(ours[name], book[name]) for name in book)


@pytest.mark.parametrize("bias", [True, False])
def test_global_stream_is_a_plain_script(bias: bool) -> None:
    book = dict(book_gpt(5, *SIZES, bias=bias).named_parameters())
    ours = weights(5, "global", qkv_bias=bias)
    assert all(torch.equal(ours[name], book[name]) for name in book)


def test_another_seed_gives_other_weights() -> None:
    first, second = weights(1), weights(2)
    assert not any(torch.equal(first[n], second[n]) for n in first if "norm" not in n)


@pytest.mark.parametrize(
    "changes",
    [
        {"qkv_bias": True},
        {"activation": "relu"},
        {"norm": "rmsnorm"},
        {"norm_placement": "post"},
        {"norm_placement": "none"},
        {"shortcut": "none"},
        {"position": "none"},
        {"position": "sinusoidal"},
        {"causal": False},
        {"expansion": 2.0},
        {"feed_forward": "identity"},
        {"attention": "identity"},
        {"tie_weights": True},
        {"n_heads": 1},
    ],
    ids=str,
)
def test_what_a_variant_shares_with_the_reference_is_the_same(changes: dict[str, object]) -> None:
    reference, variant = weights(), weights(**changes)
    same_shape = [n for n in variant if n in reference and variant[n].shape == reference[n].shape]
    if changes.get("tie_weights"):
        same_shape.remove("tok_emb.weight")  # drawn at the head's scale, see below
    if "expansion" in changes:  # another fan-in, so another scale
        same_shape = [n for n in same_shape if not n.endswith("layers.2.bias")]
    assert len(same_shape) > 5
    assert all(torch.equal(variant[name], reference[name]) for name in same_shape)


def test_kept_draws_change_no_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    variants: list[dict[str, object]] = [
        {}, {"norm": "rmsnorm"}, {"tie_weights": True}, {"position": "none"}, {"expansion": 2.0}, {"init": "gpt2"},
        {"qkv_bias": True}, {"tie_weights": True, "vocab_size": 67}, {},
    ]  # fmt: skip
    alone = [weights(seed, **changes) for changes in variants for seed in (1, 2)]
    reference = sum(value.nbytes for value in alone[0].values())
    for room in (streams.MOST_KEPT, reference + 64, 0):  # bytes: for all of them, for one at a time, for none
        monkeypatch.setattr(streams, "MOST_KEPT", room)
        with streams.keeping():
            kept = [weights(seed, **changes) for changes in variants for seed in (1, 2)]
        for ours, theirs in zip(kept, alone, strict=True):
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_draw_that_was_kept_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    uniform = Tensor.uniform_
    monkeypatch.setattr(
        Tensor, "uniform_", lambda self, *a, **k: (made.append(self.numel()), uniform(self, *a, **k))[1]
    )
    with streams.keeping():
        weights(1)
        first = len(made)
        weights(1, norm="rmsnorm")
        assert first and len(made) == first
        own = weights(1)
        own["out_head.weight"].zero_()  # a model's weights are its own
        assert weights(1)["out_head.weight"].any()
    weights(1)
    assert len(made) == 2 * first


@pytest.mark.parametrize("expansion", [0.5, 2.0, 6.0])
def test_another_shape_shares_the_noise_where_both_reach(expansion: float) -> None:
    reference, variant = weights(), weights(expansion=expansion)
    for name, fan_in_changes in (("trf_blocks.1.ff.layers.0.weight", False), ("trf_blocks.1.ff.layers.2.weight", True)):
        rows, columns = (min(a, b) for a, b in zip(reference[name].shape, variant[name].shape, strict=True))
        ratio = math.sqrt(4.0 / expansion) if fan_in_changes else 1.0  # bounds are 1/sqrt(fan_in)
        torch.testing.assert_close(variant[name][:rows, :columns], reference[name][:rows, :columns] * ratio)


def test_what_reaches_beyond_the_reference_is_drawn_at_the_same_scale() -> None:
    beyond = weights(expansion=8.0)["trf_blocks.0.ff.layers.0.weight"][96:]
    assert beyond.abs().max() < 1 / math.sqrt(24)
    assert beyond.std() == pytest.approx(1 / math.sqrt(3 * 24), rel=0.1)


def test_another_family_has_equal_quantiles() -> None:
    torch_init, gpt2_init = weights(), weights(init="gpt2")
    name = "trf_blocks.0.att.W_query.weight"
    order = torch_init[name].flatten().argsort()
    assert (gpt2_init[name].flatten()[order].diff() >= 0).all()
    assert gpt2_init[name].std() == pytest.approx(0.02, rel=0.1)
    torch.testing.assert_close(gpt2_init["tok_emb.weight"], torch_init["tok_emb.weight"] * 0.02)


def test_parameters_that_the_reference_lacks_have_streams_of_their_own() -> None:
    alone, among_others = weights(qkv_bias=True), weights(qkv_bias=True, expansion=2.0, norm_placement="sandwich")
    names = [n for n in alone if n.endswith(("W_query.bias", "W_key.bias", "W_value.bias"))]
    assert len(names) == 9
    assert all(torch.equal(alone[n], among_others[n]) for n in names)
    assert len({tuple(alone[n].tolist()) for n in names}) == 9
    name = "trf_blocks.2.att.W_key.bias"
    expected = torch.empty(24).uniform_(-(24**-0.5), 24**-0.5, generator=streams.generator(123, "init", name))
    assert torch.equal(alone[name], expected)


def test_building_leaves_the_global_random_state_alone() -> None:
    state = torch.get_rng_state()
    for rng in ("paired", "global"):
        for init in ("torch", "gpt2"):
            build(Config(model=replace(SMALL, init=init, qkv_bias=True), rng=rng))
    skeleton(SMALL)
    assert torch.equal(state, torch.get_rng_state())


def test_tied_weights_are_one_tensor_that_stays_one() -> None:
    model = build(Config(model=replace(SMALL, tie_weights=True)))
    assert model.out_head.weight is model.tok_emb.weight
    assert "out_head.weight" not in dict(model.named_parameters())
    again = copy.deepcopy(model).to(torch.float64)
    again.load_state_dict(model.state_dict())
    assert again.out_head.weight is again.tok_emb.weight


@pytest.mark.parametrize(("options", "std"), [({}, 1 / math.sqrt(3 * 24)), ({"init": {"tied_std": 1.0}}, 1.0)])
def test_tied_table_keeps_its_noise_at_the_chosen_scale(options: dict[str, dict[str, float]], std: float) -> None:
    tied = weights(tie_weights=True, options=options)["tok_emb.weight"]
    torch.testing.assert_close(tied, weights()["tok_emb.weight"] * std)


def test_gpt2_init_is_the_table_of_its_docstring() -> None:
    drawn = weights(init="gpt2", qkv_bias=True, n_layers=8)
    groups: dict[str, list[Tensor]] = {}
    for name, value in drawn.items():
        kind = "stream" if name.endswith(("out_proj.weight", "layers.2.weight")) else name.rsplit(".", 1)[1]
        groups.setdefault(kind, []).append(value.flatten())
    assert torch.cat(groups["stream"]).std() == pytest.approx(0.02 / math.sqrt(16), rel=0.02)
    assert torch.cat(groups["weight"]).std() == pytest.approx(0.02, rel=0.02)
    assert torch.cat(groups["bias"]).abs().max() == 0


@pytest.mark.usefixtures("scratch_registry")
def test_modules_of_others_draw_on_streams_of_their_own_name() -> None:
    @register("norm", "test_random_gain")
    class RandomGain(nn.Module):
        """A norm with a random parameter that no init knows."""

        def __init__(self, dim: int) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.empty(dim))
            self.reset_parameters()

        def reset_parameters(self) -> None:
            nn.init.normal_(self.gain)

        def forward(self, x: Tensor) -> Tensor:
            return x * self.gain

    few, many = weights(norm="test_random_gain", n_layers=1), weights(norm="test_random_gain")
    shared = [n for n in few if n.endswith("gain")]
    assert all(torch.equal(few[n], many[n]) for n in shared)
    assert len({many[n].sum().item() for n in many if n.endswith("gain")}) == 7


def test_deep_mlp_is_a_plain_stack() -> None:
    config = ModelConfig(architecture="deep_mlp", layer_sizes=[3, 3, 1])
    with torch.random.fork_rng():
        torch.manual_seed(7)
        book = [nn.Linear(3, 3), nn.Linear(3, 1)]
    ours = build(Config(model=config, seed=7))
    assert all(torch.equal(ours.layers[i][0].weight, book[i].weight) for i in range(2))
    assert all(torch.equal(ours.layers[i][0].bias, book[i].bias) for i in range(2))
