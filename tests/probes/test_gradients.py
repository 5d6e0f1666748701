"""Loss and gradients: against published numbers, against plain autograd, and what the probe leaves behind."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlab.config import Config, DataConfig, GradientsProbe, ModelConfig, ProbesConfig
from gptlab.data.batches import load
from gptlab.declare.one_spelling import settle
from gptlab.probes import Measurement, Subject
from gptlab.probes.gradients import measure
from gptlab.registry import register
from tests.support.book import book_gpt

SMALL = ModelConfig(vocab_size=61, context_length=12, emb_dim=24, n_heads=3, n_layers=3)
SIZES = (61, 12, 24, 3, 3)
FIVE_LAYERS = DataConfig(source="vectors", inputs=[[1.0, 0.0, -1.0]], targets=[[0.0]])

# Mean |gradient| of each layer's weight in the book's five-layer network: claims SC-wo0..4 and SC-wi0..4.
WITHOUT = [0.00020173587836325169, 0.0001201116101583466, 0.0007152041653171182, 0.001398873864673078,
           0.005049646366387606]  # fmt: skip
WITH = [0.22169792652130127, 0.20694105327129364, 0.32896995544433594, 0.2665732502937317, 1.3258541822433472]


def config_of(probe: GradientsProbe | None = None, seed: int = 123, **changes: object) -> Config:
    return settle(
        Config(
            model=replace(SMALL, **changes),
            data=DataConfig(source="random_tokens"),
            probes=ProbesConfig(gradients=probe or GradientsProbe()),
            seed=seed,
        )
    )


def five_layers(shortcut: str, rng: str = "paired") -> Measurement:
    model = ModelConfig(architecture="deep_mlp", layer_sizes=[3, 3, 3, 3, 3, 1], shortcut=shortcut)
    return measure(Subject(settle(Config(model=model, data=FIVE_LAYERS, rng=rng))))


@pytest.mark.parametrize("rng", ["paired", "global"])
@pytest.mark.parametrize(("shortcut", "published"), [("none", WITHOUT), ("add", WITH)])
def test_the_books_five_layer_network(shortcut: str, published: list[float], rng: str) -> None:
    found = five_layers(shortcut, rng)
    rows = [
        row["value"]
        for row in found.tables["layers"]
        if row["part"] == "weight" and row["metric"] == "grad_mean_abs" and row["layer"] is not None
    ]
    assert rows == pytest.approx(published, rel=1e-5)
    assert "ln_vocab_size" not in found.metrics
    assert not found.warnings


def test_shortcuts_lift_the_five_layers_by_the_published_factors() -> None:
    tensors = [five_layers(shortcut).tables["tensors"] for shortcut in ("add", "none")]
    added, plain = ([r["grad_mean_abs"] for r in rows if r["name"].endswith("weight")] for rows in tensors)
    lifts = [a / b for a, b in zip(added, plain, strict=True)]
    assert lifts == pytest.approx([1099, 1723, 460, 191, 263], abs=0.5)
    assert plain[4] / plain[0] == pytest.approx(25, abs=0.5)
    assert plain[0] > plain[1]  # the decay is not clean


def test_against_plain_autograd_on_the_books_model() -> None:
    config = config_of()
    batch = load(config.data, vocab_size=61, seed=123).batch(2, 12)
    book = book_gpt(123, *SIZES)
    loss = F.cross_entropy(book(batch.inputs).reshape(-1, 61), batch.targets.reshape(-1))
    loss.backward()
    found = measure(Subject(config))
    gradients = {name: p.grad for name, p in book.named_parameters() if p.grad is not None}
    rows = {row["name"]: row for row in found.tables["tensors"]}
    assert list(rows) == list(gradients)
    for name, gradient in gradients.items():
        assert rows[name]["shape"] == str(tuple(gradient.shape))
        assert rows[name]["numel"] == gradient.numel()
        assert rows[name]["grad_mean_abs"] == pytest.approx(gradient.abs().mean().item(), rel=1e-4)
        assert rows[name]["grad_norm"] == pytest.approx(gradient.norm().item(), rel=1e-4)
    everything = torch.cat([gradient.flatten() for gradient in gradients.values()]).double()
    assert found.metrics["loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert found.metrics["ln_vocab_size"] == math.log(61)
    assert found.metrics["grad_norm"] == pytest.approx(everything.norm().item(), rel=1e-4)
    assert found.metrics["grad_mean_abs"] == pytest.approx(everything.abs().mean().item(), rel=1e-4)


@pytest.mark.parametrize("changes", [{}, {"norm_placement": "sandwich"}, {"tie_weights": True}], ids=str)
def test_parts_are_made_of_their_tensors(changes: dict[str, object]) -> None:
    found = measure(Subject(config_of(**changes)))
    tensors = found.tables["tensors"]
    parts = {(r["layer"], r["part"], r["metric"]): r["value"] for r in found.tables["layers"]}
    assert len(parts) == len(found.tables["layers"])
    keys = {(layer, part) for layer, part, _ in parts}
    assert keys == {(r["layer"], r["group"]) for r in tensors} | {(layer, "all") for layer in range(3)}
    for layer, part in keys:
        own = [r for r in tensors if r["layer"] == layer and part in (r["group"], "all")]
        assert parts[layer, part, "grad_norm"] ** 2 == pytest.approx(sum(r["grad_norm"] ** 2 for r in own))
        weighted = sum(r["grad_mean_abs"] * r["numel"] for r in own) / sum(r["numel"] for r in own)
        assert parts[layer, part, "grad_mean_abs"] == pytest.approx(weighted)
    whole = sum(value**2 for (_, part, metric), value in parts.items() if metric == "grad_norm" and part != "all")
    assert found.metrics["grad_norm"] ** 2 == pytest.approx(whole)
    assert found.metrics["grad_norm_first"] == parts[0, "all", "grad_norm"]
    assert found.metrics["grad_norm_last"] == parts[2, "all", "grad_norm"]
    assert {row["step"] for row in found.tables["layers"]} == {0}


@pytest.mark.parametrize("dropout", [False, True])
def test_the_probe_leaves_everything_as_it_was(dropout: bool) -> None:
    subject = Subject(config_of(GradientsProbe(dropout=dropout)))
    before = {name: p.detach().clone() for name, p in subject.model.named_parameters()}
    state = torch.get_rng_state()
    measure(subject)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module.training for module in subject.model.modules())
    for name, parameter in subject.model.named_parameters():
        assert parameter.grad is None
        assert parameter.requires_grad
        assert torch.equal(parameter, before[name])


def test_an_error_leaves_no_gradients_either() -> None:
    subject = Subject(config_of())

    def fail(*_: object) -> None:
        raise RuntimeError("on the way back")

    subject.model.tok_emb.weight.register_hook(fail)
    with pytest.raises(RuntimeError, match="on the way back"):
        measure(subject)
    assert all(parameter.grad is None for parameter in subject.model.parameters())
    assert not subject.model.training


def test_dropout_is_off_unless_asked_for_and_then_follows_the_seed() -> None:
    def loss(dropout: bool, seed: int = 123, **changes: object) -> float:
        return measure(Subject(config_of(GradientsProbe(dropout=dropout), seed, **changes))).metrics["loss"]

    off, on = loss(False, drop_rate=0.5), loss(True, drop_rate=0.5)
    assert off == loss(False, drop_rate=0.0)
    assert on != off
    assert loss(True, drop_rate=0.5) == on
    assert loss(True, drop_rate=0.0) == off
    assert loss(True, 124, drop_rate=0.5) != on


def test_the_batch_is_what_the_config_says() -> None:
    config = config_of(GradientsProbe(batch_size=3, context=5))
    batch = Subject(config).source.batch(3, 5)
    assert batch.inputs.shape == (3, 5)
    logits = Subject(config).model(batch.inputs)
    expected = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()).item()
    assert measure(Subject(config)).metrics["loss"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.usefixtures("scratch_registry")
def test_a_tensor_that_nothing_reads_has_a_zero_gradient() -> None:
    @register("norm", "test_idle_parameter")
    class Idle(nn.Module):
        """Has a parameter and does not use it."""

        def __init__(self, dim: int) -> None:
            super().__init__()
            self.idle = nn.Parameter(torch.ones(dim))

        def forward(self, x: Tensor) -> Tensor:
            return x

    rows = {row["name"]: row for row in measure(Subject(config_of(norm="test_idle_parameter"))).tables["tensors"]}
    idle = rows["trf_blocks.0.norm1.idle"]
    assert (idle["numel"], idle["grad_mean_abs"], idle["grad_norm"]) == (24, 0.0, 0.0)
    assert rows["tok_emb.weight"]["grad_norm"] > 0


def test_a_wrong_initial_scale_is_told() -> None:
    wide = {"emb_dim": 96, "tie_weights": True}  # the fault grows with the width
    unscaled = measure(Subject(config_of(**wide, options={"init": {"tied_std": 1.0}})))
    assert unscaled.metrics["loss"] > 5 * math.log(61)
    assert len(unscaled.warnings) == 1
    assert "far from ln(vocab_size) = 4.111" in unscaled.warnings[0]
    for changes in ({}, {"init": "gpt2"}):
        assert measure(Subject(config_of(**wide, **changes))).warnings == []
    assert measure(Subject(config_of())).warnings == []


def test_a_loss_that_is_not_finite_is_told() -> None:
    subject = Subject(config_of())
    with torch.no_grad():
        subject.model.out_head.weight.fill_(float("nan"))
    found = measure(subject)
    assert math.isnan(found.metrics["loss"])
    assert found.warnings
