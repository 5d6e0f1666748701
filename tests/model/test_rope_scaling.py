"""Partial and stretched rotary positions: the frequencies of transformers, and what defines each scaling."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from gptlab.errors import ConfigError
from gptlab.model.positions import RotaryPosition
from gptlab.model.rope_scaling import frequencies
from tests.support.doubled import doubled

HEAD_DIM, BASE = 48, 777.0


def theirs(kind: str, context: int = 300, fraction: float = 1.0, seq_len: int | None = None, **more: Any) -> Any:
    rope = {"rope_type": kind, "rope_theta": BASE, "partial_rotary_factor": fraction, **more}
    config = LlamaConfig(
        hidden_size=2 * HEAD_DIM, num_attention_heads=2, max_position_embeddings=context, rope_parameters=rope
    )
    with doubled():
        return ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=seq_len)


SCALED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("linear", {"factor": 3.5}, {}),
    ("yarn", {"factor": 3.5, "original_context": 90}, {}),
    ("yarn", {"factor": 3.5, "original_context": 90, "beta_fast": 6.0, "beta_slow": 1.5, "attention_factor": 1.3}, {}),
    ("llama3", {"factor": 3.5, "original_context": 90, "low_freq_factor": 1.2, "high_freq_factor": 5.0}, {}),
]  # fmt: skip


@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize(("kind", "given", "more"), SCALED)
def test_frequencies_are_those_of_transformers(
    kind: str, given: dict[str, Any], more: dict[str, Any], fraction: float
) -> None:
    words = {"original_context": "original_max_position_embeddings"}
    rates, size = theirs(kind, fraction=fraction, **{words.get(k, k): v for k, v in given.items()})
    found, own_size = frequencies(int(HEAD_DIM * fraction), BASE, kind, given)
    torch.testing.assert_close(found, rates, rtol=1e-12, atol=0)
    assert own_size == pytest.approx(size, rel=1e-12)
    plain = frequencies(int(HEAD_DIM * fraction), BASE, "none", {})[0]
    assert not torch.allclose(found, plain)


def test_ntk_is_the_dynamic_one_of_transformers_at_that_length() -> None:
    """There the stretch is factor * length / context - (factor - 1): 3 for twice the length at factor 2."""
    rates, _ = theirs("dynamic", context=100, seq_len=200, factor=2.0)
    torch.testing.assert_close(frequencies(HEAD_DIM, BASE, "ntk", {"factor": 3.0})[0], rates, rtol=1e-12, atol=0)


def test_ntk_leaves_the_fastest_pair_and_squeezes_the_slowest_by_the_factor() -> None:
    plain, stretched = (frequencies(HEAD_DIM, BASE, k, g)[0] for k, g in (("none", {}), ("ntk", {"factor": 3.5})))
    ratio = plain / stretched
    assert ratio[0] == 1 and ratio[-1].item() == pytest.approx(3.5, rel=1e-12)
    assert (ratio.diff() > 0).all()


def test_yarn_and_llama3_leave_fast_pairs_and_squeeze_slow_ones() -> None:
    plain = frequencies(HEAD_DIM, BASE, "none", {})[0]
    turns = 900 * plain / (2 * math.pi)
    for kind, slow, fast in (("yarn", 1.0, 32.0), ("llama3", 1.0, 4.0)):
        ratio = plain / frequencies(HEAD_DIM, BASE, kind, {"factor": 3.5, "original_context": 900})[0]
        # YaRN's ramp begins and ends on whole pairs, just outside the two bounds.
        torch.testing.assert_close(ratio[turns > fast * 1.4], torch.ones_like(ratio[turns > fast * 1.4]))
        torch.testing.assert_close(ratio[turns < slow / 1.4], torch.full_like(ratio[turns < slow / 1.4], 3.5))
        assert ((ratio > 1.001) & (ratio < 3.499)).any()


def test_linear_is_a_shorter_distance() -> None:
    x = torch.randn(1, 1, 1, HEAD_DIM, generator=torch.Generator().manual_seed(1)).expand(1, 1, 64, HEAD_DIM)
    plain, squeezed = (RotaryPosition(64, HEAD_DIM, 1, **o) for o in ({}, {"scaling": "linear", "factor": 4.0}))
    at = torch.arange(0, 64, 4)
    slow = squeezed.rotate(x[:, :, at], x[:, :, at], at)[0]
    quick = plain.rotate(x[:, :, : len(at)], x[:, :, : len(at)], torch.arange(len(at)))[0]
    torch.testing.assert_close(slow, quick, rtol=0, atol=1e-6)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_a_part_turns_as_a_small_head_does_and_the_rest_stays(pairing: str) -> None:
    x = torch.randn(2, 3, 9, HEAD_DIM, generator=torch.Generator().manual_seed(1))
    at = torch.arange(9)
    part = RotaryPosition(9, 3 * HEAD_DIM, 3, pairing=pairing, fraction=0.25).rotate(x, x, at)[1]
    whole = RotaryPosition(9, 3 * 12, 3, pairing=pairing).rotate(x[..., :12], x[..., :12], at)[1]
    assert torch.equal(part, torch.cat((whole, x[..., 12:]), dim=-1))


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        ({"fraction": 0.0}, "rope-fraction", {"value": 0.0}),
        ({"fraction": 1.5}, "rope-fraction", {"value": 1.5}),
        ({"fraction": 0.1875}, "rope-fraction-odd", {"turned": 9}),
        ({"scaling": "liner"}, "unknown-name", {"value": "liner"}),
        ({"scaling": "linear"}, "rope-scaling-needs", {"needs": "factor"}),
        ({"scaling": "yarn", "factor": 2.0}, "rope-scaling-needs", {"needs": "original_context"}),
        ({"factor": 2.0}, "rope-scaling-ignores", {"scaling": "none"}),
        ({"scaling": "linear", "factor": 2.0, "beta_fast": 3.0}, "rope-scaling-ignores", {"scaling": "linear"}),
        ({"scaling": "linear", "factor": 0.5}, "rope-scaling-size", {"least": 1}),
        (
            {"scaling": "llama3", "factor": 2.0, "original_context": 9, "low_freq_factor": 4.0},
            "rope-scaling-order",
            {"other": 4.0},
        ),
    ],
)
def test_what_cannot_be(options: dict[str, Any], code: str, facts: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        RotaryPosition(9, HEAD_DIM, 1, **options)
    assert refused.value.code == code
    assert facts.items() <= dict(refused.value.facts).items()


def test_a_single_pair_has_no_ntk() -> None:
    with pytest.raises(ConfigError) as refused:
        RotaryPosition(9, 8, 4, scaling="ntk", factor=2.0)
    assert refused.value.code == "rope-scaling-pairs"
