"""The forward pass against independent implementations, and the published counts and tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlab.config import Config, ModelConfig
from gptlab.errors import ConfigError
from gptlab.model import GPT, build, skeleton
from tests.support.book import book_gpt

SMALL = ModelConfig(vocab_size=61, context_length=12, emb_dim=24, n_heads=3, n_layers=3)


def make(seed: int = 3, **changes: object) -> GPT:
    model = build(Config(model=replace(SMALL, **changes), seed=seed))
    assert isinstance(model, GPT)
    return model


def ids(batch: int = 2, length: int = 9, seed: int = 0) -> Tensor:
    return torch.randint(61, (batch, length), generator=torch.Generator().manual_seed(seed))


def test_forward_is_the_books() -> None:
    book = book_gpt(3, 61, 12, 24, 3, 3)
    torch.testing.assert_close(make()(ids()), book(ids()), rtol=0, atol=2e-6)


def test_a_readers_checkpoint_loads_with_its_masks() -> None:
    book = book_gpt(9, 61, 12, 24, 3, 3, bias=True)
    model = make(qkv_bias=True)
    model.load_state_dict(book.state_dict())
    assert "trf_blocks.0.att.mask" in book.state_dict()
    torch.testing.assert_close(model(ids()), book(ids()), rtol=0, atol=2e-6)


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize(("activation", "theirs"), [("relu", F.relu), ("gelu", F.gelu)])
def test_blocks_are_torch_encoder_layers(placement: str, activation: str, theirs: object) -> None:
    model = make(norm_placement=placement, activation=activation, qkv_bias=True)
    block, state = model.trf_blocks[1], dict(model.trf_blocks[1].named_parameters())
    with torch.random.fork_rng():
        layer = nn.TransformerEncoderLayer(
            24, 3, 96, 0.0, theirs, batch_first=True, norm_first=placement == "pre"
        ).eval()
    with torch.no_grad():
        for kind in ("weight", "bias"):
            qkv = torch.cat([state[f"att.W_{n}.{kind}"] for n in ("query", "key", "value")])
            getattr(layer.self_attn, f"in_proj_{kind}").copy_(qkv)
            getattr(layer.self_attn.out_proj, kind).copy_(state[f"att.out_proj.{kind}"])
            getattr(layer.linear1, kind).copy_(state[f"ff.layers.0.{kind}"])
            getattr(layer.linear2, kind).copy_(state[f"ff.layers.2.{kind}"])
    x = torch.randn(2, 9, 24, generator=torch.Generator().manual_seed(1))
    mask = nn.Transformer.generate_square_subsequent_mask(9)
    torch.testing.assert_close(block(x), layer(x, src_mask=mask, is_causal=True), rtol=0, atol=2e-6)


def test_placements_by_their_formulas() -> None:
    x = torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(1))
    for placement in ("pre", "post", "sandwich", "none"):
        b = make(norm_placement=placement).trf_blocks[0]
        for norm in (b.norm1, b.norm2, b.norm1_output, b.norm2_output):
            for parameter in norm.parameters():  # away from ones and zeros, so that a misplaced norm shows
                nn.init.uniform_(parameter, 0.5, 1.5, generator=torch.Generator().manual_seed(parameter.numel()))
        y = x
        for f, n, out in ((b.att, b.norm1, b.norm1_output), (b.ff, b.norm2, b.norm2_output)):
            y = {
                "pre": lambda y, f=f, n=n, out=out: y + f(n(y)),
                "post": lambda y, f=f, n=n, out=out: n(y + f(y)),
                "sandwich": lambda y, f=f, n=n, out=out: y + out(f(n(y))),
                "none": lambda y, f=f, n=n, out=out: y + f(y),
            }[placement](y)
        torch.testing.assert_close(b(x), y)


@pytest.mark.parametrize(("placement", "norms"), [("pre", 7), ("post", 6), ("sandwich", 13), ("none", 0)])
def test_number_of_norms(placement: str, norms: int) -> None:
    model = skeleton(replace(SMALL, norm_placement=placement))
    assert sum(type(m).__name__ == "LayerNorm" for m in model.modules()) == norms


@pytest.mark.parametrize(
    ("changes", "causal"),
    [({}, True), ({"causal": False}, False), ({"norm_placement": "post"}, True), ({"position": "none"}, True),
     ({"shortcut": "none"}, True), ({"attention": "identity"}, True)],
    ids=str,
)  # fmt: skip
def test_a_changed_token_moves_nothing_before_it(changes: dict[str, object], causal: bool) -> None:
    model, tokens = make(**changes), ids()
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 61
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :5], after[:, :5]) is causal
    assert not torch.equal(before[:, 5], after[:, 5])
    crosses = changes.get("attention") != "identity"
    assert torch.equal(before[:, 6:], after[:, 6:]) is not crosses


def test_batch_neighbours_do_not_matter() -> None:
    model, tokens = make(), ids(3)
    torch.testing.assert_close(model(tokens)[1:2], model(tokens[1:2]), rtol=0, atol=1e-6)


def test_shortcuts_apart_and_scaled() -> None:
    x = torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(1))
    b = make(
        shortcut_attention="none", shortcut_feed_forward="scaled", options={"shortcut": {"scale": 0.25}}
    ).trf_blocks[0]
    y = b.att(b.norm1(x))
    torch.testing.assert_close(b(x), y + 0.25 * b.ff(b.norm2(y)))


def test_dropout_sites_are_three_and_apart() -> None:
    rates = {"drop_embedding": 0.2, "drop_attention": 0.3, "drop_shortcut": 0.4}
    model = make(drop_rate=0.9, **rates)
    block = model.trf_blocks[0]
    assert (model.drop_emb.p, block.att.drop_attention, block.drop_shortcut.p) == (0.2, 0.3, 0.4)
    model = make(drop_rate=0.5, drop_attention=0.0)
    block = model.trf_blocks[0]
    assert (model.drop_emb.p, block.att.drop_attention, block.drop_shortcut.p) == (0.5, 0.0, 0.5)


@pytest.mark.parametrize("site", ["drop_embedding", "drop_attention", "drop_shortcut"])
def test_each_dropout_site_is_live_in_training_and_off_in_eval(site: str) -> None:
    model, tokens = make(drop_rate=0.0, **{site: 0.5}), ids()
    assert torch.equal(model(tokens), model(tokens))
    with torch.random.fork_rng():
        model.train()
        assert not torch.equal(model(tokens), model(tokens))


def test_longer_than_the_context_is_refused() -> None:
    with pytest.raises(ValueError, match="13 tokens do not fit into context_length=12"):
        make(position="none")(ids(1, 13))


def test_dummy_model_still_gives_logits() -> None:
    dummy = ModelConfig(norm="identity", attention="identity", feed_forward="identity", shortcut="none")
    model = skeleton(dummy)
    assert model(model.example_input(2, 4)).shape == (2, 4, 50257)
    small = make(norm="identity", attention="identity", feed_forward="identity", shortcut="none")
    x = torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(1))
    assert torch.equal(nn.Sequential(*small.trf_blocks)(x), x)


def parameters(**changes: object) -> int:
    model = skeleton(replace(ModelConfig(), **changes))
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 163_009_536),
        ({"tie_weights": True}, 124_412_160),
        ({"tie_weights": True, "qkv_bias": True}, 124_439_808),
        ({"emb_dim": 1024, "n_layers": 24, "n_heads": 16}, 406_212_608),
        ({"emb_dim": 1280, "n_layers": 36, "n_heads": 20}, 838_220_800),
        ({"emb_dim": 1600, "n_layers": 48, "n_heads": 25}, 1_637_792_000),
        ({"emb_dim": 1600, "n_layers": 48, "n_heads": 25, "tie_weights": True}, 1_557_380_800),
        ({"context_length": 2048, "tie_weights": True, "qkv_bias": True}, 125_226_240),
        (
            {
                "emb_dim": 12288,
                "n_layers": 96,
                "n_heads": 96,
                "context_length": 2048,
                "tie_weights": True,
                "qkv_bias": True,
            },
            174_604_259_328,
        ),
    ],
    ids=str,
)
def test_published_counts(changes: dict[str, object], count: int) -> None:
    assert parameters(**changes) == count


def test_published_counts_by_part() -> None:
    block = skeleton(ModelConfig()).trf_blocks[0]
    count = lambda module: sum(parameter.numel() for parameter in module.parameters())  # noqa: E731
    assert (count(block.ff), count(block.att), count(block)) == (4_722_432, 2_360_064, 7_085_568)
    half = skeleton(ModelConfig(expansion=2)).trf_blocks[0]
    assert count(half.ff) - count(half.att) == 1536


@pytest.mark.parametrize(
    ("d", "L", "V", "T", "tie", "bias"),
    [(8, 2, 12, 16, True, True), (24, 3, 61, 12, False, False), (40, 1, 99, 7, True, False)],
)
def test_counts_are_the_closed_form(d: int, L: int, V: int, T: int, tie: bool, bias: bool) -> None:
    attention = 4 * d * d + d + 3 * d * bias
    feed_forward = 8 * d * d + 5 * d
    closed = V * d * (1 if tie else 2) + T * d + L * (attention + feed_forward + 4 * d) + 2 * d
    sizes = {"vocab_size": V, "context_length": T, "emb_dim": d, "n_heads": d // 8, "n_layers": L}
    assert parameters(**sizes, tie_weights=tie, qkv_bias=bias) == closed


@pytest.mark.slow
def test_the_books_untrained_text() -> None:
    model = build(Config())
    tokens = [15496, 11, 314, 716]
    with torch.no_grad():
        for _ in range(10):
            tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    assert tokens[4:] == [27018, 24086, 47843, 30961, 42348, 7267, 49706, 43231, 47062, 34657]


def test_an_untied_state_is_not_poured_into_a_tied_model() -> None:
    """It said `all keys matched`, and the embedding was lost."""
    with torch.no_grad(), torch.random.fork_rng():
        sizes = ModelConfig(vocab_size=20, emb_dim=8, n_heads=2, n_layers=1)
        tied, untied = (GPT(replace(sizes, tie_weights=wanted)) for wanted in (True, False))
        for weight in (*tied.parameters(), *untied.parameters()):
            weight.normal_()
    before = tied.tok_emb.weight.clone()
    with pytest.raises(ConfigError) as caught:
        tied.load_state_dict(untied.state_dict())
    assert (caught.value.code, caught.value.key) == ("weights-not-tied", "model.tie_weights")
    assert torch.equal(tied.tok_emb.weight, before)
    with torch.no_grad():
        untied.out_head.weight.copy_(untied.tok_emb.weight)
    tied.load_state_dict(untied.state_dict())  # equal tables are one table
    assert torch.equal(tied.out_head.weight, untied.tok_emb.weight)
    tied.load_state_dict(tied.state_dict())
