"""Laws of the untrained network: how the stream, the gradients, the logits and the updates scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F

from gptlab.config import Config, ModelConfig
from gptlab.model import GPT, build, learning_rate_scales

UNIT_EMBEDDING = {"init": {"embedding_std": 1.0}}


def make(seed: int = 1, **config: object) -> GPT:
    model = build(Config(model=ModelConfig(**config), seed=seed))
    assert isinstance(model, GPT)
    return model


def ids(vocab_size: int, batch: int = 2, length: int = 32, seed: int = 0) -> torch.Tensor:
    return torch.randint(vocab_size, (batch, length), generator=torch.Generator().manual_seed(seed))


def mean_square_by_depth(model: GPT, tokens: torch.Tensor) -> list[float]:
    """Mean square of the stream after each block."""
    found: list[float] = []
    handles = [
        block.register_forward_hook(lambda module, inputs, output: found.append(output.x.pow(2).mean().item()))
        for block in model.trf_blocks
    ]
    with torch.no_grad():
        model(tokens)
    for handle in handles:
        handle.remove()
    return found


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Slope of log(values) against log(sizes)."""
    x, y = torch.tensor(sizes).double().log(), torch.tensor(values).double().log()
    x, y = x - x.mean(), y - y.mean()
    return ((x * y).sum() / (x * x).sum()).item()


def stream(placement: str) -> list[float]:
    model = make(
        vocab_size=512, context_length=32, emb_dim=128, n_heads=4, n_layers=32, norm_placement=placement,
        position="none", init="xavier", activation="relu", options=UNIT_EMBEDDING,
    )  # fmt: skip
    return mean_square_by_depth(model, ids(512))


@pytest.mark.slow
def test_mean_square_of_the_stream_by_placement() -> None:
    for placement in ("post", "deepnorm"):
        assert all(value == pytest.approx(1.0, abs=1e-3) for value in stream(placement))
    for placement in ("peri", "out", "sandwich"):  # each branch adds a vector of mean square 1
        found = stream(placement)
        assert found[31] == pytest.approx(1 + 2 * 32, rel=0.1)
        assert found[7] == pytest.approx(1 + 2 * 8, rel=0.15)
    pre, scaled, none = stream("pre"), stream("lns"), stream("none")
    assert exponent([4, 8, 16, 32], [pre[i - 1] for i in (4, 8, 16, 32)]) == pytest.approx(1.0, abs=0.2)
    assert exponent([4, 8, 16, 32], [scaled[i - 1] for i in (4, 8, 16, 32)]) == pytest.approx(0.25, abs=0.15)
    assert none[31] / none[15] > 1e4 * none[7] / none[3]  # exponential: each doubling of depth outdoes the one before


@pytest.mark.slow
@pytest.mark.parametrize(("placement", "expected"), [("pre", -0.5), ("post", 0.0)])
def test_gradient_of_the_last_block_against_depth(placement: str, expected: float) -> None:
    """Xiong et al. 2020, theorem 1: L^(-1/2) under pre-LN, constant under post-LN."""
    depths, norms = (4, 8, 16, 32), []
    for depth in depths:
        total = 0.0
        for seed in (1, 2, 3):
            model = make(
                seed, vocab_size=128, context_length=32, emb_dim=64, n_heads=1, n_layers=depth, activation="relu",
                norm_placement=placement, expansion=1.0, init="xavier", options=UNIT_EMBEDDING,
            )  # fmt: skip
            logits = model(ids(128, 4, seed=seed)).flatten(0, 1)
            F.cross_entropy(logits, ids(128, 4, seed=seed + 9).flatten()).backward()
            total += model.trf_blocks[-1].ff.layers[2].weight.grad.norm().item()
        norms.append(total)
    assert exponent(depths, norms) == pytest.approx(expected, abs=0.1)


@pytest.mark.slow
def test_gpt2_scaling_of_branches_keeps_the_stream_constant_over_depth() -> None:
    def rms(n_layers: int, scale_residual: bool) -> float:
        model = make(
            vocab_size=512, context_length=32, emb_dim=128, n_heads=4, n_layers=n_layers, init="gpt2",
            options={"init": {"scale_residual": scale_residual}},
        )  # fmt: skip
        return math.sqrt(mean_square_by_depth(model, ids(512))[-1])

    assert rms(64, True) == pytest.approx(rms(4, True), rel=0.05)
    assert rms(64, False) == pytest.approx(4 * rms(4, False), rel=0.25)  # sqrt(64 / 4) without


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 1 / math.sqrt(3)),
        ({"tie_weights": True}, 1 / math.sqrt(3)),
        ({"tie_weights": True, "options": {"init": {"tied_std": 1.0}}}, math.sqrt(256)),
        ({"init": "gpt2"}, 0.02 * math.sqrt(256)),
        ({"init": "gpt2", "tie_weights": True}, 0.02 * math.sqrt(256)),
    ],
    ids=str,
)
def test_logits_start_at_the_heads_scale_times_the_root_of_the_width(
    changes: dict[str, object], expected: float
) -> None:
    model = make(vocab_size=2048, context_length=32, emb_dim=256, n_heads=4, n_layers=2, **changes)
    with torch.no_grad():
        logits = model(ids(2048, 4))
    assert logits.std().item() == pytest.approx(expected, rel=0.05)
    if expected < 1:  # the closed form of the first loss holds for random targets and small logits
        loss = F.cross_entropy(logits.flatten(0, 1), ids(2048, 4, seed=9).flatten()).item()
        assert loss == pytest.approx(math.log(2048) + expected**2 / 2, abs=0.15)


def changes_after_training(width: int, seed: int, init: str) -> dict[str, float]:
    """Mean |change| of activations in the last block and of the logits after five steps of Adam."""
    options: dict[str, dict[str, object]] = {"attention": {"scale": "inverse"}} if init == "mup" else {}
    if init == "mup":
        options["init"] = {"base_width": 64, "head_std": 0.0}
    sizes = {"vocab_size": 128, "context_length": 32, "emb_dim": width, "n_heads": 4, "n_layers": 2}
    config = ModelConfig(**sizes, init=init, options=options)
    model = build(Config(model=config, seed=seed))
    rates = learning_rate_scales(model, config)
    groups = [{"params": [p], "lr": 1e-3 * rates[name]} for name, p in model.named_parameters()]
    optimizer = torch.optim.Adam(groups)
    inputs, targets = ids(128, 8, seed=5), ids(128, 8, seed=6)
    block, seen = model.trf_blocks[1], {}
    for name, module in (("attention", block.att), ("feed_forward", block.ff), ("stream", block), ("logits", model)):
        module.register_forward_hook(
            lambda module, inputs, output, name=name: seen.__setitem__(name, getattr(output, "x", output).detach())
        )
    model(inputs)
    before = dict(seen)
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
        optimizer.step()
    model(inputs)
    return {name: (seen[name] - before[name]).abs().mean().item() for name in seen}


@pytest.mark.slow
def test_mup_updates_do_not_depend_on_the_width_and_standard_ones_do() -> None:
    """The coordinate check of Yang et al. 2022. In the standard parametrisation every exponent is near 1/2 or above."""
    widths = (64, 128, 256, 512)
    for init in ("mup", "torch"):
        totals = [
            {k: sum(changes_after_training(w, seed, init)[k] for seed in (1, 2, 3)) for k in ("attention", "logits")}
            | {
                k: sum(changes_after_training(w, seed, init)[k] for seed in (1, 2, 3))
                for k in ("feed_forward", "stream")
            }
            for w in widths
        ]
        for name in ("attention", "feed_forward", "stream", "logits"):
            found = exponent(widths, [total[name] for total in totals])
            assert abs(found) < 0.1 if init == "mup" else found > 0.4, (init, name, found)
