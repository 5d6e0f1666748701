"""Each line of `gptlab check` passes for a sound variant, and a component that breaks it makes it fail."""

from __future__ import annotations

import copy
import importlib
import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gptlab
from gptlab.check import CHECKS, RUNS, Report, check
from gptlab.check import case as case_module
from gptlab.config import Config, ModelConfig
from gptlab.model.attention import MultiHeadAttention
from gptlab.model.gpt import GPT
from gptlab.registry import register
from tests.support.refusals import refused

SMALL = ModelConfig(vocab_size=97, context_length=16, emb_dim=16, n_heads=2, n_layers=2)
BASE = Config(model=SMALL, label="small")


def variant(**changes: Any) -> Config:
    return replace(BASE, model=replace(SMALL, **changes))


def lines(report: Report) -> dict[str, tuple[str, str]]:
    return {line.check: (line.status, line.reason) for line in report.lines}


def failures(config: Config, baseline: Config | None = BASE) -> dict[str, str]:
    return {line.check: line.reason for line in check(config, baseline).lines if line.status == "fail"}


@pytest.mark.parametrize(
    "changes",
    [
        {"activation": "relu"}, {"norm_placement": "post"}, {"norm_placement": "deepnorm"}, {"shortcut": "rezero"},
        {"tie_weights": True}, {"position": "rope"}, {"position": "alibi"}, {"feed_forward": "swiglu"},
        {"n_kv_heads": 1}, {"layout": "parallel"}, {"qkv_bias": True}, {"drop_rate": 0.0}, {"n_layers": 0},
        {"layers": {"1": {"activation": "relu", "drop_attention": 0.5}}}, {"options": {"attention": {"window": 2}}},
        {"init": "gpt2"}, {"layout": "attention_only"}, {"attention": "identity"}, {"context_length": 1},
        {"drop_rate": 0.0, "drop_feed_forward": 0.3},
    ],
    ids=str,
)  # fmt: skip
def test_what_ships_passes(changes: dict[str, Any]) -> None:
    found = failures(variant(**changes))
    if changes == {"context_length": 1}:  # one token attends to itself whatever query and key say
        assert found.keys() == {"every parameter"} and "W_query" in found["every parameter"]
    else:
        assert found == {}


def test_the_baseline_is_not_compared_with_itself() -> None:
    found = lines(check(BASE, BASE))
    assert [name for name, (status, _) in found.items() if status != "pass"] == [
        "every expert", "auxiliary losses", "ties", "differs from baseline"
    ]  # fmt: skip
    assert list(found) == [RUNS, *CHECKS]


def test_deep_mlp_has_what_applies() -> None:
    found = lines(check(gptlab.compose(["model=deep_mlp", "model.shortcut=none"]), gptlab.compose(["model=deep_mlp"])))
    none = {name for name, (status, _) in found.items() if status == "not applicable"}
    assert none == {
        "causality", "causality of gradients", "initial loss", "ties", "decoding", "every expert", "auxiliary losses"
    }  # fmt: skip
    assert all(status != "fail" for status, _ in found.values())


def test_no_mask_is_declared_and_so_no_failure() -> None:
    found = lines(check(variant(causal=False), BASE))
    assert found["causality"] == ("not applicable", "declared off: model.causal=false")
    assert all(status != "fail" for status, _ in found.values())


def test_a_scale_that_is_wrong_for_tied_weights() -> None:
    found = failures(variant(tie_weights=True, emb_dim=64, options={"init": {"tied_std": 1.0}}))
    assert found.keys() == {"initial loss"} and "s.d. 9" in found["initial loss"]


def test_a_dropout_without_rate_is_not_applicable_news() -> None:
    _, words = lines(check(variant(drop_rate=0.0), BASE))["train and eval"]
    assert "no dropout is declared" in words
    assert "outputs differ in training alone" in lines(check(variant(drop_rate=0.3), BASE))["differs from baseline"][1]


# Components that each break one thing.


def broken(slot: str, make: type[nn.Module]) -> Config:
    register(slot, "test_broken")(make)
    return variant(**{slot: "test_broken"})


class Peeking(nn.Module):
    """Adds a little of the next token."""

    def __init__(self, emb_dim: int, n_heads: int, strength: float = 1e-3) -> None:
        super().__init__()
        self.inner, self.strength = MultiHeadAttention(emb_dim, n_heads), strength

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x + self.strength * F.pad(x[:, 1:], (0, 0, 0, 1)))


class BatchNormed(nn.Module):
    """Statistics over the batch and over time."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * (x - x.mean((0, 1))) / (x.var((0, 1), unbiased=False) + 1e-5).sqrt()


class BatchNormedInTraining(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.inner = nn.BatchNorm1d(dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.transpose(1, 2)).transpose(1, 2)


class Wide(nn.Module):
    def __init__(self, emb_dim: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((x, x), dim=1)


class NotANumber(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.log()


class InfiniteSlope(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 0).abs().sqrt() + x


class Dead(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scale, self.unused = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:]) * self.scale


class Silenced(Dead):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 0 * self.unused


class Loud(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 30 * F.layer_norm(x, x.shape[-1:])


class LoseTie(nn.Module):
    """One matrix under two names, which a move to another type takes apart."""

    def __init__(self, emb_dim: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(emb_dim, emb_dim), nn.Linear(emb_dim, emb_dim)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).tanh())

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        self.second.weight = nn.Parameter(self.first.weight.detach().clone())
        return self


class LoseTieInCopies(LoseTie):
    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        return nn.Module._apply(self, fn, recurse)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        new = LoseTieInCopies(self.first.in_features)
        new.load_state_dict(self.state_dict())
        new.second.weight = nn.Parameter(self.first.weight.detach().clone())
        return new


class Unsaved(nn.Module):
    """A random projection that no checkpoint holds."""

    mix: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("mix", torch.eye(dim) + 0.1 * torch.randn(dim, dim), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x @ self.mix, x.shape[-1:])


class Unloadable(Dead):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.unused

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        found = super().state_dict(*args, **kwargs)
        prefix = kwargs.get("prefix", "")
        found[f"{prefix}extra"] = torch.zeros(1)
        return found


class OnMetaOther(nn.Module):
    """Asks a tensor for its value while it is built, as no component may."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        size = dim if torch.empty(1).is_meta else dim + 1
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:]) * self.scale[: x.shape[-1]]


class NoisyInEval(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 0.01 * torch.randn_like(x)


class NoisyInTraining(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 0.01 * torch.randn_like(x) if self.training else x.relu()


class OtherInTraining(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.relu() if self.training else F.gelu(x)


class PythonRandom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1 + random.random()))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x.relu()


class SameAsBefore(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")


class HalfOverflow(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        low = torch.is_autocast_enabled("cpu")
        return x * math.inf if low else x.relu()


BROKEN: list[tuple[str, type[nn.Module], dict[str, str]]] = [
    ("attention", Peeking, {"causality": "the future leaks", "causality of gradients": "from later tokens"}),
    (
        "norm",
        BatchNormed,
        {
            "batch neighbours": "in eval mode",
            "causality": "leaks",
            "causality of gradients": "later",
            "decoding": "token by",
        },
    ),
    ("norm", BatchNormedInTraining, {"batch neighbours": "in training mode", "train and eval": "every dropout at 0"}),
    ("activation", NotANumber, {"finite": "the loss is nan", "initial loss": "nan"}),
    ("activation", InfiniteSlope, {"finite": "no finite gradient"}),
    ("norm", Dead, {"every parameter": "not part of the output: trf_blocks.0.norm1.unused"}),
    ("norm", Silenced, {"every parameter": "no gradient, at the start and beside it: trf_blocks.0.norm1.unused"}),
    ("norm", Loud, {"initial loss": "is the initial scale right?"}),
    ("feed_forward", LoseTie, {"ties": ".to(torch.bfloat16) breaks trf_blocks.0.ff.first.weight"}),
    ("feed_forward", LoseTieInCopies, {"ties": "deepcopy breaks trf_blocks.0.ff.first.weight"}),
    ("norm", Unsaved, {"state dict": "something that matters is not saved"}),
    ("norm", Unloadable, {"state dict": "cannot be loaded again"}),
    ("norm", OnMetaOther, {"counts": "final_norm.scale: (16,) when counted, (17,) when built"}),
    ("activation", NoisyInEval, {"train and eval": "two passes in eval mode differ"}),
    ("activation", OtherInTraining, {"train and eval": "every dropout at 0, training still differs"}),
    ("activation", PythonRandom, {"seed": "the same seed gives other values", "global random state": "building moves"}),
    ("activation", SameAsBefore, {"differs from baseline": "model.activation is declared, and parameters and outputs"}),
    ("activation", HalfOverflow, {"bf16 autocast": "outputs are not finite"}),
]


@pytest.mark.usefixtures("scratch_registry")
@pytest.mark.parametrize(("slot", "make", "expected"), BROKEN, ids=[make.__name__ for _, make, _ in BROKEN])
def test_what_is_broken_fails(slot: str, make: type[nn.Module], expected: dict[str, str]) -> None:
    found = failures(broken(slot, make))
    for name, words in expected.items():
        assert words in found.get(name, "passed"), found
    also = {"global random state", "decoding"} if make is NoisyInEval else set()
    also |= {"state dict"} if make is PythonRandom else set()
    assert found.keys() - also == expected.keys(), found


@pytest.mark.usefixtures("scratch_registry")
def test_noise_in_training_without_a_declared_dropout() -> None:
    register("activation", "test_broken")(NoisyInTraining)
    found = failures(variant(activation="test_broken", drop_rate=0.0))
    assert found == {"train and eval": "no dropout is declared, and two passes in training mode differ"}


@pytest.mark.usefixtures("scratch_registry")
def test_a_peek_too_small_to_see_in_the_logits_has_a_gradient() -> None:
    register("attention", "test_broken")(Peeking)
    found = failures(variant(attention="test_broken", options={"attention": {"strength": 1e-12}}))
    assert found.keys() == {"causality of gradients"}


@pytest.mark.usefixtures("scratch_registry")
def test_a_component_that_raises_is_a_line_and_not_a_traceback() -> None:
    found = lines(check(broken("feed_forward", Wide), BASE))
    assert found[RUNS][0] == "fail" and "RuntimeError" in found[RUNS][1]
    assert all(status == "not applicable" for name, (status, _) in found.items() if name != RUNS)


@pytest.mark.usefixtures("scratch_registry")
def test_a_component_that_fails_at_one_token_only() -> None:
    @register("activation", "test_broken")
    class NeedsTwo(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.shape[1] == 1:
                raise ValueError("one token is too short")
            return x.relu()

    told = "ValueError: one token is too short"
    assert failures(variant(activation="test_broken")) == {"shapes": f"at B=1, T=1: {told}", "decoding": told}


def test_wrong_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = GPT.forward
    monkeypatch.setattr(GPT, "forward", lambda self, ids: plain(self, ids)[:, -1:])
    assert failures(variant(activation="relu"))["shapes"] == (
        "at B=1, T=16: (1, 1, 97) torch.float32 instead of (1, 16, 97)"
    )


def test_a_tie_that_is_declared_and_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Untied(GPT):
        def __init__(self, config: ModelConfig) -> None:
            super().__init__(config)
            if config.tie_weights:
                self.out_head.weight = copy.deepcopy(self.tok_emb.weight)

    monkeypatch.setitem(importlib.import_module("gptlab.model.build").ARCHITECTURES, "gpt", Untied)
    assert "separate weights" in failures(variant(tie_weights=True))["ties"]


@pytest.mark.usefixtures("scratch_registry")
def test_dropout_that_is_declared_and_missing() -> None:
    @register("feed_forward", "test_broken")
    class Deaf(nn.Module):
        def __init__(self, emb_dim: int, drop_feed_forward: float = 0.0) -> None:
            super().__init__()
            self.inner = nn.Linear(emb_dim, emb_dim)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    found = failures(variant(feed_forward="test_broken", drop_rate=0.0, drop_feed_forward=0.5))
    assert found == {"train and eval": "drop_feed_forward=0.5, and nothing is random in training"}


def test_seeds_that_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = case_module.Case.with_seed
    monkeypatch.setattr(case_module.Case, "with_seed", lambda self, seed: plain(self, 1))
    config = replace(variant(activation="relu"), seed=1)
    assert failures(config)["seed"] == "another seed gives the same weights"


def test_a_model_beyond_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_module, "physical_memory", lambda: 1000)
    with refused("check-memory", copies=4):
        check(BASE)


def test_what_the_user_got_wrong_is_an_error_not_a_line() -> None:
    with refused("attention-kv-heads-divide", key="model.n_kv_heads", value=3, n_heads=2):
        check(variant(n_kv_heads=3))


def test_checking_leaves_the_process_alone() -> None:
    torch_before, python_before = torch.get_rng_state(), random.getstate()
    check(variant(activation="relu"), BASE)
    assert torch.equal(torch_before, torch.get_rng_state()) and random.getstate() == python_before


def test_a_report_as_data() -> None:
    document = check(BASE, BASE).to_json()
    assert document["passed"] is True and document["label"] == "small"
    assert set(document["lines"][0]) == {"check", "status", "reason", "value"}
