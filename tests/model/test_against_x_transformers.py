"""Small parts against x-transformers, which many papers are tried in."""

from __future__ import annotations

import warnings

import torch

from gptlab.model.activations import relu2
from gptlab.model.norms import DynamicTanh, RMSNorm, ScaleNorm
from gptlab.model.positions import alibi_slopes

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it uses torch.jit.script
    from x_transformers import x_transformers as reference


def x() -> torch.Tensor:
    return 3 * torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(1))


def test_relu2() -> None:
    assert torch.equal(relu2()(x()), reference.ReluSquared()(x()))


def test_dyt() -> None:
    torch.testing.assert_close(DynamicTanh(24, initial_alpha=1.0)(x()), reference.DynamicTanh(24)(x()))


def test_rmsnorm() -> None:
    torch.testing.assert_close(RMSNorm(24, eps=0.0)(x()), reference.RMSNorm(24)(x()))


def test_scalenorm() -> None:
    torch.testing.assert_close(ScaleNorm(24)(x()), reference.ScaleNorm(24)(x()))


def test_alibi_slopes() -> None:
    for heads in (1, 2, 3, 6, 8, 12, 16, 25):
        theirs = reference.AlibiPositionalBias(heads, heads).slopes.flatten()
        torch.testing.assert_close(torch.tensor(alibi_slopes(heads)), theirs)
