"""What parameters are for: said by modules, asked by the optimizer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gptlab
from gptlab.config import TrainConfig
from gptlab.model import skeleton
from gptlab.model.roles import ROLES, parameter_roles
from gptlab.registry import register
from gptlab.training.optimizer import Updates, _groups
from tests.support.refusals import refused


def roles(*overrides: str) -> dict[str, str]:
    return parameter_roles(skeleton(gptlab.compose(["model=tiny", "model.n_layers=1", *overrides]).model))


def decayed(*overrides: str) -> set[str]:
    model = gptlab.build(gptlab.compose(["model=tiny", "model.n_layers=1", *overrides]))
    names = {id(weight): name for name, weight in model.named_parameters()}
    groups = _groups(model, TrainConfig(weight_decay=0.1))
    return {names[id(weight)] for group in groups if group["weight_decay"] for weight in group["params"]}


def test_the_book_s_gpt() -> None:
    found = roles("model.qkv_bias=true")
    assert set(found.values()) == set(ROLES)
    assert found["tok_emb.weight"] == found["pos_emb.weight"] == "embedding" and found["out_head.weight"] == "head"
    assert found["trf_blocks.0.att.W_query.weight"] == found["trf_blocks.0.ff.layers.2.weight"] == "matrix"
    assert found["trf_blocks.0.att.W_query.bias"] == found["trf_blocks.0.norm1.shift"] == "vector"
    assert found["trf_blocks.0.norm1.scale"] == found["final_norm.scale"] == "gain"
    assert roles("ablation=tied")["tok_emb.weight"] == "embedding"


@pytest.mark.parametrize(
    ("overrides", "ending"),
    [
        (["model.options.attention.scale=learned"], "att.head_scale"),
        (["model.options.attention.qk_norm=l2"], "att.head_scale"),
        (["model.options.attention.qk_norm=rms"], "att.query_norm.scale"),
        (["model.shortcut=rezero"], "shortcut_att.alpha"),
        (["model.shortcut=layerscale"], "shortcut_att.alpha"),
        (["model.norm=scalenorm"], "norm1.gain"),
        (["model.norm=dyt"], "norm1.alpha"),
    ],
)
def test_every_gain_is_one_and_is_not_decayed(overrides: list[str], ending: str) -> None:
    name = f"trf_blocks.0.{ending}"
    assert roles(*overrides)[name] == "gain"
    assert name not in decayed(*overrides)


@pytest.mark.usefixtures("scratch_registry")
def test_a_plugin_s_gain_is_what_it_says_or_what_its_shape_tells() -> None:
    class Gained(nn.Module):
        def __init__(self, emb_dim: int) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.ones(emb_dim, 2))
            self.per_head = nn.Parameter(torch.ones(4, 1, 1))
            self.mix = nn.Parameter(torch.ones(emb_dim, emb_dim))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.mix * self.gain.sum(-1) * self.per_head.mean()

    class Says(Gained):
        def parameter_roles(self) -> dict[str, str]:
            return {"gain": "gain"}

    register("feed_forward", "test_silent")(Gained)
    register("feed_forward", "test_says")(Says)
    silent, said = (roles(f"model.feed_forward={name}") for name in ("test_silent", "test_says"))
    ff = "trf_blocks.0.ff."
    assert (silent[f"{ff}gain"], said[f"{ff}gain"]) == ("matrix", "gain")
    assert silent[f"{ff}per_head"] == said[f"{ff}per_head"] == "vector"  # (heads, 1, 1) is no matrix
    assert silent[f"{ff}mix"] == "matrix"
    assert f"{ff}gain" not in decayed("model.feed_forward=test_says")
    config = gptlab.compose(["model=tiny", "model.n_layers=1", "model.feed_forward=test_says"])
    model = gptlab.build(config)
    names = {id(weight): name for name, weight in model.named_parameters()}
    adam, muon = Updates(model, TrainConfig(optimizer="muon")).optimizers
    assert f"{ff}mix" in {names[id(w)] for group in muon.param_groups for w in group["params"]}
    assert f"{ff}gain" in {names[id(w)] for group in adam.param_groups for w in group["params"]}


@pytest.mark.parametrize(
    ("said", "code", "facts"),
    [
        ({"gain": "gane"}, "unknown-name", {"key": "Odd.parameter_roles: gain", "value": "gane", "suggestion": "gain"}),
        ({"gian": "gain"}, "role-of-no-parameter", {"name": "gian"}),
    ],
)
def test_a_module_that_says_nonsense_is_refused(said: dict[str, str], code: str, facts: dict[str, Any]) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.ones(3))

        def parameter_roles(self) -> dict[str, str]:
            return said

    with refused(code, **facts):
        parameter_roles(Odd())
