"""What reaches a layer from further back: each by its formula, or by another model that computes the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gptlab.config import Config, ModelConfig
from gptlab.model import GPT, build, skeleton
from gptlab.probes import splits
from gptlab.probes.activations import observe
from gptlab.probes.parameters import flops_per_token
from tests.support.refusals import refused

SMALL = ModelConfig(vocab_size=61, context_length=16, emb_dim=24, n_heads=3, n_layers=4, drop_rate=0.0)
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def make(**changes: Any) -> GPT:
    model = build(Config(model=replace(SMALL, **changes)))
    assert isinstance(model, GPT)
    return model.double()


def attending(**options: Any) -> GPT:
    return make(options={"attention": options})


def ids() -> Tensor:
    return torch.randint(61, (2, 9), generator=torch.Generator().manual_seed(1))


def counted(**changes: Any) -> int:
    return sum(p.numel() for p in skeleton(replace(SMALL, **changes)).parameters())


def stirred(model: GPT) -> GPT:
    """With other scales than those that it starts from."""
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() < 2:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype))
    return model


def inputs_of(model: GPT, tokens: Tensor) -> list[Tensor]:
    """The normed stream as it enters each attention."""
    found: list[Tensor] = []
    handles = [b.att.register_forward_pre_hook(lambda _, x: found.append(x[0])) for b in model.trf_blocks]
    model(tokens)
    for handle in handles:
        handle.remove()
    return found


def attended(layer: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k) v, projected; heads in groups share keys and values."""
    shared = layer.n_heads // v.shape[1]
    y = layer.logits(q, k).softmax(-1) @ v.repeat_interleave(shared, dim=1)
    return layer.out_proj(y.transpose(1, 2).flatten(2))


# --- values


@pytest.mark.parametrize("how", ["fixed", "learned"])
@torch.no_grad()
def test_value_residual_by_its_formula(how: str) -> None:
    model = stirred(attending(value_residual=how))
    tokens, outputs = ids(), []
    for block in model.trf_blocks:
        block.att.register_forward_hook(lambda m, _, y: outputs.append(y[0]))
    streams = inputs_of(model, tokens)
    first = model.trf_blocks[0].att.queries_keys_values(streams[0])[2]
    for place, block in enumerate(model.trf_blocks):
        q, k, v = block.att.queries_keys_values(streams[place])
        own, share = (0.5, 0.5) if how == "fixed" or not place else block.att.value_mix.shares
        torch.testing.assert_close(outputs[place], attended(block.att, q, k, own * v + share * first), **CLOSE)


@torch.no_grad()
def test_a_share_of_one_is_attention_without_it() -> None:
    model, plain = attending(value_residual="learned"), make()
    for block in model.trf_blocks[1:]:
        block.att.value_mix.shares.copy_(torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(model(ids()), plain(ids()), **CLOSE)


@torch.no_grad()
def test_the_first_layer_that_mixes_is_the_first() -> None:
    options = {"options": {"attention": {"value_residual": "fixed"}}}
    model, plain = make(layers={"1-3": options}), make()
    streams = inputs_of(plain, ids())
    given = model.trf_blocks[1].att(streams[1])
    torch.testing.assert_close(given.y, plain.trf_blocks[1].att(streams[1]), **CLOSE)
    torch.testing.assert_close(given.first_values, model.trf_blocks[1].att.queries_keys_values(streams[1])[2], **CLOSE)
    assert (model(ids()) - plain(ids())).abs().max() > 1e-4


@torch.no_grad()
def test_value_embedding_by_its_formula() -> None:
    model = stirred(make(n_kv_heads=1, options={"attention": {"value_embedding": True}}))
    layer, x = model.trf_blocks[2].att, inputs_of(model, ids())[2]
    q, k, v = layer.queries_keys_values(x)
    rows = layer.value_embedding.table.weight[ids()][:, None]  # one head of values
    expected = attended(layer, q, k, v + layer.value_embedding.scale * rows)
    torch.testing.assert_close(layer(x, ids=ids()), expected, **CLOSE)


# --- keys and values of several layers


@pytest.mark.parametrize("position", ["rope", "alibi", "learned"])
@torch.no_grad()
def test_shared_keys_values_by_their_formula(position: str) -> None:
    model = make(attention="shared_keys_values", position=position, n_kv_heads=1, options={"attention": {"every": 3}})
    tokens, outputs = ids(), []
    for block in model.trf_blocks:
        block.att.register_forward_hook(lambda m, _, y: outputs.append(y[0] if isinstance(y, tuple) else y))
    streams, plain = inputs_of(model, tokens), make(position=position, n_kv_heads=1)
    for place, block in enumerate(plain.trf_blocks):
        block.load_state_dict(model.trf_blocks[place].state_dict(), strict=False)
        q = block.att.queries_keys_values(streams[place])[0]
        giver = 3 * (place // 3)
        _, k, v = plain.trf_blocks[giver].att.queries_keys_values(streams[giver])
        torch.testing.assert_close(outputs[place], attended(block.att, q, k, v), **CLOSE)


def test_what_shared_keys_values_save() -> None:
    model = make(attention="shared_keys_values")
    assert counted() - counted(attention="shared_keys_values") == 2 * 2 * 24 * 24
    config = replace(SMALL, attention="shared_keys_values")
    costs = [flops_per_token(skeleton(c), c, 8).forward for c in (SMALL, config)]
    assert costs[0] - costs[1] == 2 * 2 * 2 * 24 * 24  # two layers without two matrices
    decoding = model.run(ids(), model.start_decoding(2)).decoding
    assert decoding is not None and [set(block) for block in decoding.blocks] == [{"att"}, set(), {"att"}, set()]
    torch.testing.assert_close(
        make(attention="shared_keys_values", options={"attention": {"every": 1}})(ids()), make()(ids())
    )


# --- skips


def by_hand(model: GPT, tokens: Tensor, around: Any) -> Tensor:
    """The logits, where the stream before each block is `around(place, block, stream, all that entered before)`."""
    x = model.tok_emb(tokens) + model.pos_emb.weight[: tokens.shape[1]]
    entered: list[Tensor] = []
    for place, block in enumerate(model.trf_blocks):
        entered.append(x)
        x = around(place, block, x, entered)
        x = x + block.att(block.norm1(x))
        x = x + block.ff(block.norm2(x))
    return model.out_head(model.final_norm(x))


@torch.no_grad()
def test_the_first_embeddings_come_back() -> None:
    model = stirred(make(skip="first_embeddings"))
    scales = lambda block: block.skip.scales  # noqa: E731
    expected = by_hand(model, ids(), lambda _, b, x, entered: scales(b)[0] * x + scales(b)[1] * entered[0])
    torch.testing.assert_close(model(ids()), expected, **CLOSE)
    torch.testing.assert_close(make(skip="first_embeddings")(ids()), make()(ids()), **CLOSE)  # it starts at nothing


@pytest.mark.parametrize("n_layers", [4, 5])
@torch.no_grad()
def test_halves_meet_as_in_a_u(n_layers: int) -> None:
    model = stirred(make(skip="halves", n_layers=n_layers))

    def around(place: int, block: Any, x: Tensor, entered: list[Tensor]) -> Tensor:
        other = n_layers - 1 - place
        return x + block.skip.scale * entered[other] if other < place else x

    torch.testing.assert_close(model(ids()), by_hand(model, ids(), around), **CLOSE)
    assert counted(skip="halves", n_layers=n_layers) - counted(n_layers=n_layers) == n_layers // 2


# --- the same blocks again


def unrolled(model: GPT) -> GPT:
    """A model of twice as many layers, the upper ones with the weights of the lower ones."""
    deep = make(n_layers=8)
    with torch.no_grad():
        for place, block in enumerate(deep.trf_blocks):
            block.load_state_dict(model.trf_blocks[place % 4].state_dict())
        for name in ("tok_emb", "pos_emb", "final_norm", "out_head"):
            getattr(deep, name).load_state_dict(getattr(model, name).state_dict())
    return deep


def loss(model: nn.Module) -> Tensor:
    return model(ids()).logsumexp(-1).sum()


def test_two_passes_are_twice_the_layers() -> None:
    model = make(loops=2)
    deep = unrolled(model)
    torch.testing.assert_close(model(ids()), deep(ids()), **CLOSE)
    (loss(model) + loss(deep)).backward()
    for name, parameter in model.trf_blocks.named_parameters():
        place, _, rest = name.partition(".")
        both = [deep.trf_blocks.get_parameter(f"{int(place) + more}.{rest}").grad for more in (0, 4)]
        torch.testing.assert_close(parameter.grad, both[0] + both[1], rtol=1e-10, atol=1e-10)
    assert counted(loops=2) == counted()
    blocks = flops_per_token(skeleton(SMALL), SMALL, 8).forward - 2 * 24 * 61
    looped = replace(SMALL, loops=2)
    assert flops_per_token(skeleton(looped), looped, 8).forward == 2 * blocks + 2 * 24 * 61


def test_probes_see_each_pass_as_layers_of_its_own() -> None:
    model = make(loops=2)
    deep, config = unrolled(model), replace(SMALL, loops=2)
    found = [splits.rows(splits.split(m, lambda m=m: loss(m))) for m in (model, deep)]
    found += [observe(model, config, ids())[0], observe(deep, replace(SMALL, n_layers=8), ids())[0]]
    for one, other in (found[:2], found[2:]):
        assert {row["layer"] for row in one} - {None} == set(range(8))
        values = [{(row["layer"], row["part"], row["metric"]): row["value"] for row in rows} for rows in (one, other)]
        assert values[0] == pytest.approx(values[1], rel=1e-9, abs=1e-12)


# --- what all of them keep


@pytest.mark.parametrize(
    "changes",
    [
        {"skip": "first_embeddings"}, {"skip": "halves"}, {"loops": 2}, {"attention": "shared_keys_values"},
        {"options": {"attention": {"value_residual": "learned", "value_embedding": True}}},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_shared_with_the_baseline_has_its_weights(changes: dict[str, Any]) -> None:
    plain, other = make().state_dict(), make(**changes).state_dict()
    common = [name for name in plain if name in other]
    assert len(common) >= len(plain) - 4
    assert all(torch.equal(plain[name], other[name]) for name in common)


def test_what_is_refused() -> None:
    with refused("unknown-name", key="model.options.attention.value_residual", value="larned", suggestion="learned"):
        attending(value_residual="larned")
    with refused("shared-every", key="model.options.attention.every", value=0):
        make(attention="shared_keys_values", options={"attention": {"every": 0}})
    with refused("not-handed-on", part="TakesKeysValues", value="shared_keys", layer=1):
        make(attention="shared_keys_values", layers={"0": {"attention": "identity"}})
    with refused("halves-unpaired"):
        make(skip="halves", layers={"1": {"skip": "none"}})(ids())
    narrow = {"n_kv_heads": 1}
    with refused("first-values-shape", value="1 heads of 8", first="3 heads of 8"):
        make(options={"attention": {"value_residual": "fixed"}}, layers={"2": narrow})(ids())
