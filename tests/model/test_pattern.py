"""Layers of a few kinds in turn: what a pattern comes to, and what it must not be."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import gptlab
from gptlab.config import Config, ModelConfig
from gptlab.errors import ConfigError
from gptlab.identity import identity
from gptlab.model import GPT, build
from gptlab.model.pattern import expanded

LOCAL: dict[str, Any] = {"options": {"attention": {"window": 3}}}
KINDS = {"local": LOCAL, "global": {}, "relu": {"activation": "relu"}}


def model(order: list[str], rest: list[str] | None = None, n_layers: int = 6, **changes: Any) -> ModelConfig:
    kinds = {name: KINDS[name] for name in dict.fromkeys([*order, *(rest or [])])}
    pattern: dict[str, Any] = {"kinds": kinds, "order": order} | ({"rest": rest} if rest is not None else {})
    return ModelConfig(
        vocab_size=61, context_length=16, emb_dim=24, n_heads=3, n_layers=n_layers, pattern=pattern, **changes
    )


@pytest.mark.parametrize(
    ("order", "rest", "layers"),
    [
        (["local", "global"], None, {"0": LOCAL, "2": LOCAL, "4": LOCAL}),
        (["local", "local", "global"], [], {"0-1": LOCAL, "3-4": LOCAL}),
        (["local", "local", "global", "relu"], ["local", "local"], {"0-1": LOCAL, "3": KINDS["relu"], "4-5": LOCAL}),
        (["global", "local"], ["local", "local"], {"1": LOCAL, "3-5": LOCAL}),
        (["local"], None, {"0-5": LOCAL}),
    ],
)
def test_a_pattern_comes_to_layers(order: list[str], rest: list[str] | None, layers: dict[str, Any]) -> None:
    found = expanded(model(order, rest))
    assert found.layers == layers
    assert found.pattern == {}


def test_a_pattern_and_its_layers_are_one_run() -> None:
    words = ["model=tiny", "model.n_layers=4"]
    said = [
        "model.pattern.kinds.a.activation=relu", "model.pattern.kinds.b.norm=rmsnorm", "model.pattern.order=[a,b,b]",
        "model.pattern.rest=[a]",
    ]  # fmt: skip
    layers = ["model.layers.0.activation=relu", "model.layers.1-2.norm=rmsnorm", "model.layers.3.activation=relu"]
    one, other = gptlab.compose([*words, *said]), gptlab.compose([*words, *layers])
    assert identity(one) == identity(other)
    assert one.model.pattern == {}


def test_a_model_made_by_hand_has_its_pattern_too() -> None:
    built = build(Config(model=model(["local", "global"])))
    assert isinstance(built, GPT)
    assert [block.att.window for block in built.trf_blocks] == [3, None] * 3


def test_paired_weights_are_those_of_the_plain_model() -> None:
    patterned = build(Config(model=model(["relu", "local"])))
    plain = build(Config(model=ModelConfig(vocab_size=61, context_length=16, emb_dim=24, n_heads=3, n_layers=6)))
    own = patterned.state_dict()
    assert own.keys() == plain.state_dict().keys()
    assert all(torch.equal(own[name], value) for name, value in plain.state_dict().items())


def test_a_layer_without_positions_sees_none() -> None:
    words = [
        "model=tiny",
        "model.position=rope",
        "model.layers.1.position=none",
        "model.layers.0.options.position.base=77",
    ]
    blocks = gptlab.build(gptlab.compose(words)).trf_blocks
    assert blocks[1].att.position is None
    assert blocks[0].att.position.cos[1, 1].item() == pytest.approx(torch.tensor(77 ** (-2 / 8)).cos().item())


@pytest.mark.parametrize(
    ("pattern", "code", "facts"),
    [
        ({"kinds": {"a": {}}, "order": ["a", "a", "a", "a"]}, "pattern-does-not-fill", {"left": 2, "period": 4}),
        ({"kinds": {"a": {}}, "order": ["a"] * 7}, "pattern-does-not-fill", {"left": 6}),
        ({"kinds": {"a": {}}, "order": ["a"] * 2, "rest": ["a"]}, "pattern-does-not-fill", {"left": 0, "rest": 1}),
        ({"kinds": {"a": {}}, "order": ["a"] * 4, "rest": ["a"] * 6}, "pattern-does-not-fill", {"rest": 6}),
        ({"kinds": {"local": {}}, "order": ["locl"]}, "unknown-name", {"value": "locl", "suggestion": "local"}),
        ({"kinds": {"a": {}, "b": {}}, "order": ["a"]}, "pattern-kind-unused", {"value": "b"}),
        ({"kinds": {"a": {}}}, "pattern-needs", {}),
        ({"order": ["a"]}, "pattern-needs", {}),
        (["a"], "pattern-needs", {}),
        ({"kinds": {"a": {"activaton": "relu"}}, "order": ["a"]}, "unknown-name", {"suggestion": "activation"}),
        ({"kinds": {"a": {"emb_dim": 3}}, "order": ["a"]}, "layer-key-of-model", {}),
        ({"kinds": {"a": None}, "order": ["a"]}, "layer-holds-no-keys", {}),
        ({"kinds": {"a": {}}, "ordr": ["a"]}, "unknown-name", {"suggestion": "order"}),
    ],
)
def test_what_cannot_be(pattern: Any, code: str, facts: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        expanded(ModelConfig(n_layers=6, pattern=pattern))
    assert refused.value.code == code
    assert facts.items() <= dict(refused.value.facts).items()


def test_beside_layers_it_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        gptlab.compose(["model=tiny", "ablation=[local_global,no_norm_first_block]"])
    assert refused.value.code == "pattern-beside-layers"


@pytest.mark.parametrize("position", ["none", "sinusoidal"])
def test_the_position_of_a_layer_acts_inside_its_attention(position: str) -> None:
    with pytest.raises(ConfigError) as refused:
        gptlab.compose(["model=tiny", f"model.layers.1.position={position}"])
    assert refused.value.code == "layer-position"


def test_a_position_that_no_layer_takes_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        gptlab.compose(["model=tiny", "model.position=rope", "model.layers.0-1.position=none"])
    assert refused.value.code == "position-without-attention"
