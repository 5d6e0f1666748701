"""The gradient of the stream, split between shortcut and branch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gptlab.config import Config, ModelConfig
from gptlab.model import build
from gptlab.probes.splits import Split, rows, split

SMALL = ModelConfig(vocab_size=31, context_length=12, emb_dim=16, n_heads=2, n_layers=2)
MLP = ModelConfig(architecture="deep_mlp", layer_sizes=[3, 3, 3, 3, 3, 1])


def model_of(**changes: Any) -> Any:
    base = MLP if changes.pop("mlp", False) else SMALL
    model = build(Config(model=replace(base, **changes), seed=5)).double()
    with torch.no_grad():  # off the round numbers of a start, so that nothing holds by accident
        for i, parameter in enumerate(model.parameters()):
            generator = torch.Generator().manual_seed(i)
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def loss_of(model: nn.Module) -> torch.Tensor:
    if not hasattr(model, "trf_blocks"):
        x = torch.tensor([[1.0, 0.5, -1.0]], dtype=torch.float64, requires_grad=True)
        return model(x).square().mean()
    ids = torch.randint(31, (2, 10), generator=torch.Generator().manual_seed(1))
    return F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def splits_of(model: nn.Module) -> dict[tuple[int, str], Split]:
    return {(s.layer, s.part): s for s in split(model, lambda: loss_of(model))}


VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm_placement": "post"},
    {"norm_placement": "peri"},
    {"norm_placement": "deepnorm"},
    {"norm_placement": "none"},
    {"shortcut": "none"},
    {"shortcut": "skipinit"},
    {"shortcut_attention": "none"},
    {"shortcut_attention": "scaled"},
    {"layout": "attention_only"},
    {"layout": "feed_forward_only"},
    {"layout": "parallel"},
    {"layout": "parallel", "norm_placement": "deepnorm"},
    {"attention": "identity"},
    {"tie_weights": True},
    {"mlp": True},
    {"mlp": True, "shortcut": "none"},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_the_two_parts_add_up_exactly(changes: dict[str, Any]) -> None:
    found = splits_of(model_of(**changes))
    assert found
    for (layer, part), s in found.items():
        together = s.shortcut + s.branch
        if changes.get("layout") == "parallel" and part != "all":  # two branches read the same stream
            other = found[layer, "feed_forward" if part == "attention" else "attention"]
            together = together + other.branch
        torch.testing.assert_close(s.total, together, rtol=0, atol=1e-12)
    assert max(s.total.abs().max().item() for s in found.values()) > 1e-4


def test_a_plain_shortcut_hands_on_the_gradient_behind_it() -> None:
    found = splits_of(model_of())
    assert torch.equal(found[0, "attention"].shortcut, found[0, "feed_forward"].total)
    assert torch.equal(found[0, "feed_forward"].shortcut, found[1, "attention"].total)
    torch.testing.assert_close(found[0, "all"].shortcut, found[1, "all"].total)


def test_the_branch_part_is_the_jacobian_of_the_branch() -> None:
    model = model_of()
    block, found = model.trf_blocks[1], splits_of(model)
    seen: list[torch.Tensor] = []
    with block.register_forward_pre_hook(lambda _, x: seen.append(x[0].detach())):
        loss_of(model)
    after = found[1, "feed_forward"].total
    _, back = torch.autograd.functional.vjp(lambda x: block.att(block.norm1(x)), seen[0], after)
    torch.testing.assert_close(found[1, "attention"].branch, back)


def test_without_a_shortcut_all_of_it_takes_the_branch() -> None:
    for s in splits_of(model_of(shortcut="none")).values():
        assert not s.shortcut.any() and torch.equal(s.total, s.branch)


def test_post_norm_bypasses_run_through_the_norms() -> None:
    model = model_of(norm_placement="post")
    found, block = splits_of(model), model.trf_blocks[0]
    # With the branches cut off in the backward pass only, the block is norm2(norm1(x + const) + const).
    seen: dict[str, torch.Tensor] = {}
    with (
        block.shortcut_att.register_forward_hook(lambda _m, x, _y: seen.update(x=x[0].detach(), a=x[1].detach())),
        block.shortcut_ff.register_forward_hook(lambda _m, x, _y: seen.update(f=x[1].detach())),
    ):
        loss_of(model)
    straight = lambda x: block.norm2(block.norm1(x + seen["a"]) + seen["f"])  # noqa: E731
    _, back = torch.autograd.functional.vjp(straight, seen["x"], found[1, "all"].total)
    torch.testing.assert_close(found[0, "all"].shortcut, back)


def test_rows_are_tidy() -> None:
    model = model_of()
    found = rows(list(splits_of(model).values()))
    assert {row["part"] for row in found} == {"attention", "feed_forward", "all"}
    names = {"grad_stream_norm", "grad_shortcut_norm", "grad_branch_norm", "grad_split_cosine"}
    assert {row["metric"] for row in found} == names
    assert {tuple(row) for row in found} == {("step", "layer", "part", "metric", "value")}
    # A law of cosines: the three norms and the cosine belong together.
    (a, b, c, cos) = (row["value"] for row in found[:4])
    assert a**2 == pytest.approx(b**2 + c**2 + 2 * b * c * cos)


def test_the_model_is_left_alone() -> None:
    model = model_of()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    split(model, lambda: loss_of(model))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
