"""Mixtures of experts: their formula, transformers' own blocks, balance with and without a loss, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gptlab
from gptlab.check import tokens, training
from gptlab.check.case import Case
from gptlab.config import Config, ModelConfig
from gptlab.model import build
from gptlab.model.experts.moe import MixtureOfExperts
from gptlab.model.experts.routing import Routing, load_balance
from gptlab.model.roles import parameter_roles
from gptlab.probes.activations import observe
from gptlab.probes.parameters import count
from tests.support.doubled import doubled
from tests.support.refusals import refused
from tests.support.training import numbers, toy, trained, weights_hash

DIM, WIDTH, EXPERTS = 12, 20, 5
SMALL = ModelConfig(
    vocab_size=61, context_length=32, emb_dim=DIM, n_heads=2, n_layers=2, hidden_dim=WIDTH, drop_rate=0.0,
    feed_forward="moe",
)  # fmt: skip


def config(**options: Any) -> Config:
    return Config(model=replace(SMALL, options={"feed_forward": {"n_experts": EXPERTS, **options}}))


def layer(bias: bool = True, **options: Any) -> MixtureOfExperts:
    """That of the first block, in float64, with weights that are not small."""
    wanted = config(**options)
    found = build(replace(wanted, model=replace(wanted.model, feed_forward_bias=bias))).trf_blocks[0].ff.double()
    assert isinstance(found, MixtureOfExperts)
    with torch.no_grad():
        for number, (_, parameter) in enumerate(sorted(found.named_parameters())):
            parameter.copy_(randn(*parameter.shape, seed=number + 5) * 0.4)
    return found


def randn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_hand(moe: MixtureOfExperts, x: Tensor, scores: Callable[[Tensor], Tensor], top_k: int) -> Tensor:
    """One token and one expert after the other, from the stacked weights alone."""
    bank: Any = moe.experts
    found = []
    for token in x.flatten(0, 1):
        share = scores(moe.router.project.weight @ token)
        best = share.topk(top_k).indices.tolist()
        y = torch.zeros_like(token)
        for e in best:
            if hasattr(bank, "gate"):
                inner = F.silu(bank.gate.weight[e] @ token + bank.gate.bias[e])
                inner = inner * (bank.value.weight[e] @ token + bank.value.bias[e])
            else:
                inner = F.gelu(bank.first.weight[e] @ token + bank.first.bias[e], approximate="tanh")
            y = y + share[e] / share[best].sum() * (bank.out.weight[e] @ inner + bank.out.bias[e])
        found.append(y)
    return torch.stack(found).view_as(x)


@pytest.mark.parametrize("expert", ["mlp", "swiglu"])
@pytest.mark.parametrize("router", ["softmax", "sigmoid"])
@pytest.mark.parametrize("top_k", [2, EXPERTS])
def test_a_weighted_sum_of_the_chosen(expert: str, router: str, top_k: int) -> None:
    """With all experts chosen it is a dense sum; the gradients are those of the sum, too."""
    moe, x = layer(expert=expert, router=router, top_k=top_k), randn(2, 6, DIM).requires_grad_()
    scores = (lambda z: z.softmax(-1)) if router == "softmax" else torch.sigmoid
    weights, inputs = randn(2, 6, DIM, seed=3), [x, *moe.parameters()]
    found, expected = moe(x).y, by_hand(moe, x, scores, top_k)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    for one, other in zip(
        torch.autograd.grad((found * weights).sum(), inputs), torch.autograd.grad((expected * weights).sum(), inputs),
        strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_scores_as_they_are_and_a_scale() -> None:
    x = randn(2, 6, DIM)
    plain, raw = layer(top_k=2), layer(top_k=2, normalised=False, scale=2.5)
    routing = raw.routing(x)
    torch.testing.assert_close(routing.weights, 2.5 * routing.scores.gather(1, routing.chosen))
    torch.testing.assert_close(plain.routing(x).weights.sum(-1), torch.ones(12, dtype=torch.float64))
    assert torch.equal(plain.routing(x).chosen, routing.chosen)


def test_equal_to_the_mixture_of_deepseek_v3() -> None:
    """Sigmoid scores, a bias that chooses and does not weigh, a scale, and shared experts: output and gradients."""
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as theirs

    given = theirs.DeepseekV3Config(
        hidden_size=DIM, moe_intermediate_size=WIDTH, n_routed_experts=EXPERTS, num_experts_per_tok=2, n_group=1,
        topk_group=1, n_shared_experts=2, routed_scaling_factor=2.5, norm_topk_prob=True,
    )  # fmt: skip
    given._experts_implementation = "eager"
    options = {"expert": "swiglu", "router": "sigmoid", "shared": 2, "scale": 2.5, "bias_rate": 0.1, "balance": 0.0}
    with doubled(), torch.random.fork_rng():
        ours = layer(bias=False, **options)
        assert ours.router.bias is not None
        ours.router.bias.copy_(randn(EXPERTS, seed=9))
        other = theirs.DeepseekV3MoE(given).double()
        bank, shared = ours.experts, ours.shared
        assert isinstance(shared, nn.Module)
        state = {
            "gate.weight": ours.router.project.weight, "gate.e_score_correction_bias": ours.router.bias,
            "experts.gate_up_proj": torch.cat([bank.gate.weight, bank.value.weight], 1),
            "experts.down_proj": bank.out.weight, "shared_experts.gate_proj.weight": shared.gate.weight,
            "shared_experts.up_proj.weight": shared.value.weight, "shared_experts.down_proj.weight": shared.out.weight,
        }  # fmt: skip
        other.load_state_dict({name: value.detach() for name, value in state.items()})
        x, weights = randn(2, 7, DIM), randn(2, 7, DIM, seed=3)
        one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, expected = ours(one).y, other(two)
        (y * weights).sum().backward()
        (expected * weights).sum().backward()
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(one.grad, two.grad, rtol=0, atol=1e-12)
    torch.testing.assert_close(ours.router.project.weight.grad, other.gate.weight.grad, rtol=0, atol=1e-12)
    torch.testing.assert_close(bank.out.weight.grad, other.experts.down_proj.grad, rtol=0, atol=1e-12)


def test_the_balance_of_one_sequence_is_that_of_transformers() -> None:
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

    with torch.no_grad():
        routing = layer(top_k=2).routing(randn(1, 9, DIM))
    expected = load_balancing_loss_func((routing.logits,), EXPERTS, top_k=2)
    assert 2 * load_balance(routing, 1).item() == pytest.approx(float(expected), rel=1e-6)  # theirs is in float32


def test_the_balance_is_one_where_all_are_equal_and_taken_by_sequence() -> None:
    scores = torch.full((4, 4), 0.25)
    even = Routing(scores, scores, torch.tensor([[0, 1], [2, 3], [1, 0], [3, 2]]), scores[:, :2])
    assert load_balance(even, 1).item() == load_balance(even, 2).item() == 1
    one_each = torch.eye(2).repeat_interleave(2, 0)  # the first sequence goes to one expert, the second to the other
    apart = Routing(one_each, one_each, torch.tensor([[0], [0], [1], [1]]), torch.ones(4, 1))
    assert load_balance(apart, 2).item() == 2 and load_balance(apart, 1).item() == 1


def test_losses_are_the_formulas() -> None:
    moe, x = layer(balance=0.3, router_z=0.7), randn(2, 6, DIM)
    with torch.no_grad():
        found, routing = moe(x), moe.routing(x)
    assert found.load_balance.item() == pytest.approx(0.3 * load_balance(routing, 2).item())
    assert found.router_z.item() == pytest.approx(0.7 * routing.logits.exp().sum(-1).log().square().mean().item())
    silent = layer(balance=0.0)(x)
    assert silent.load_balance is None and silent.router_z is None


# --- in training


def experts(*overrides: str, steps: int = 4) -> Config:
    return toy("model.feed_forward=moe", "model.drop_rate=0", "train.log_every=1", *overrides, steps=steps)


OPTION = "model.options.feed_forward"
BIASED = (f"{OPTION}.bias_rate=0.01", f"{OPTION}.balance=0.1", f"{OPTION}.router_z=0.1")


def test_micro_batches_change_nothing(tmp_path: Path) -> None:
    found = {}
    for parts in (1, 2):
        wanted = experts(*BIASED, f"train.accumulate={parts}", "train.optimizer=sgd")
        found[parts] = trained(wanted, tmp_path / str(parts))[1]
    for one, two in zip(numbers(tmp_path / "1"), numbers(tmp_path / "2"), strict=True):
        assert one["metrics"] == pytest.approx(two["metrics"], rel=1e-4)
        assert one["step"] == 0 or {"auxiliary_loss/load_balance", "auxiliary_loss/router_z"} <= one["metrics"].keys()
    for name, value in found[1].named_buffers():
        torch.testing.assert_close(value, found[2].get_buffer(name), msg=name)


def test_a_resumed_run_is_the_run_its_bias_too(tmp_path: Path) -> None:
    often = experts(*BIASED, "train.checkpoint_every=2")
    _, model = trained(often, tmp_path / "a")
    short = experts(*BIASED, "train.checkpoint_every=2", steps=4)
    trained(short, tmp_path / "b")
    for folder in sorted((tmp_path / "b" / "checkpoints").iterdir())[1:]:
        (folder / "meta.json").unlink()
    _, resumed = trained(short, tmp_path / "b", resume=True)
    assert weights_hash(model) == weights_hash(resumed)
    assert any(bool(value.any()) for name, value in model.named_buffers() if name.endswith("router.bias"))


def test_the_bias_rises_for_idle_experts_until_they_are_as_busy() -> None:
    moe = layer(bias_rate=0.01, top_k=1, normalised=False).train()
    assert moe.router.bias is not None
    x = randn(4, 64, DIM)
    before = moe.routing(x).load()
    moe.router.load.zero_()
    moe(x[:2]), moe(x[2:])  # two micro-batches
    torch.testing.assert_close(moe.router.load, before.double())
    moe.router.after_step()
    torch.testing.assert_close(moe.router.bias, 0.01 * torch.sign(before.mean() - before).double())
    for _ in range(200):
        moe(x)
        moe.router.after_step()
    after = moe.eval().routing(x)
    assert after.load().std() < before.std() / 4
    torch.testing.assert_close(after.weights, after.scores.gather(1, after.chosen))  # it weighs nothing


def test_each_expert_has_vectors_of_length_one_under_the_rule_for_weights() -> None:
    wanted = config(expert="swiglu")
    bank: Any = build(replace(wanted, model=replace(wanted.model, after_step="unit_norm"))).trf_blocks[0].ff.experts
    ones = torch.ones(EXPERTS, WIDTH)
    for lengths in (bank.gate.weight.norm(dim=2), bank.value.weight.norm(dim=2), bank.out.weight.norm(dim=1)):
        torch.testing.assert_close(lengths, ones)


# --- what it costs, and what is seen


def test_what_a_token_meets_is_counted_apart() -> None:
    made, dense = (
        count(Config(model=replace(SMALL, feed_forward=name, options=options)))
        for name, options in (("moe", {"feed_forward": {"n_experts": 8, "top_k": 2, "shared": 1}}), ("mlp", {}))
    )
    each = 2 * DIM * WIDTH + WIDTH + DIM
    router = 8 * DIM
    assert made["parameters"] - dense["parameters"] == 2 * (8 * each + router)  # in each of two blocks
    assert made["parameters_active"] - dense["parameters"] == 2 * (2 * each + router)
    assert "parameters_active" not in dense
    # A shared layer and two of the experts, and the router.
    more = made["flops_forward_per_token"] - dense["flops_forward_per_token"]
    assert more == 2 * (2 * 2 * (2 * DIM * WIDTH) + 2 * router)


def test_biases_of_experts_are_no_matrices() -> None:
    model = build(gptlab.compose(["model=tiny", "ablation=moe", "model.feed_forward_bias=true"]))
    roles = parameter_roles(model)
    assert {role for name, role in roles.items() if "experts" in name and name.endswith("bias")} == {"vector"}
    assert {role for name, role in roles.items() if "experts" in name and name.endswith("weight")} == {"matrix"}


def test_a_probe_shows_where_tokens_go() -> None:
    wanted = config(top_k=2)
    model, ids = build(wanted), torch.arange(40).view(2, 20)
    with torch.no_grad():
        for block in model.trf_blocks:
            block.ff.router.project.weight.zero_()  # all scores are equal: the first two are taken
    rows = [row for row in observe(model, wanted.model, ids)[0] if row["layer"] == 1]
    found = {(row["part"], row["metric"]): row["value"] for row in rows}
    assert found["feed_forward", "router_entropy"] == pytest.approx(math.log(EXPERTS))
    assert found["feed_forward", "expert_load_max"] == EXPERTS / 2
    assert found["feed_forward", "idle_experts"] == pytest.approx(1 - 2 / EXPERTS)
    loads = [found[f"feed_forward expert {number}", "expert_load"] for number in range(EXPERTS)]
    assert sum(loads) == pytest.approx(EXPERTS) and loads.count(0) == EXPERTS - 2


def test_the_check_sees_an_expert_that_the_bias_hides() -> None:
    case = Case(config(bias_rate=0.1))
    assert training.experts(case).status == training.auxiliary_losses(case).status == "pass"
    case.model.trf_blocks[1].ff.router.bias[3] = -10.0
    verdict = training.experts(case)
    assert verdict.status == "fail" and "trf_blocks.1.ff.experts" in verdict.reason and " 3 " in verdict.reason


def test_a_row_does_not_hang_on_its_neighbours_with_dropout_inside() -> None:
    wanted = config(shared=1)
    case = Case(replace(wanted, model=replace(wanted.model, drop_feed_forward=0.4)))
    assert tokens.neighbours(case).status == "pass"
    train, other = (case.output(case.example(2, 16), train=True, stream=name) for name in ("a", "b"))
    assert not torch.equal(train, other)


def test_the_choice_is_made_in_full_precision() -> None:
    moe, x = layer().float(), randn(2, 9, DIM).float()
    with torch.autocast("cpu", torch.bfloat16):
        found = moe.routing(x)
    assert found.logits.dtype == found.scores.dtype == torch.float32
    torch.testing.assert_close(found.logits, moe.routing(x).logits, rtol=0, atol=0)


def test_it_goes_on_with_a_text_token_by_token() -> None:
    model, ids = build(config()), torch.arange(12)[None]
    whole, decoding, found = model(ids), model.start_decoding(1), []
    for at in range(12):
        output = model.run(ids[:, at : at + 1], decoding)
        decoding = output.decoding
        found.append(model.out_head(output.features))
    torch.testing.assert_close(torch.cat(found, 1), whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"n_experts": 1, "top_k": 1}, "experts-too-few"), ({"top_k": 9}, "top-k-of-experts"),
        ({"top_k": 0}, "top-k-of-experts"), ({"top_k": 1}, "one-expert-normalised"),
        ({"bias_rate": -0.1}, "bias-rate-negative"), ({"balance": -0.1}, "experts-option-negative"),
        ({"expert": "identity"}, "expert-kind"), ({"expert": "moe"}, "expert-kind"),
        ({"router": "softmaxx"}, "unknown-name"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be(options: dict[str, Any], code: str) -> None:
    with refused(code):
        build(config(**options))


def test_ablations_matched_in_what_a_token_meets() -> None:
    for name in ("moe_active", "moe_fine"):
        made = count(gptlab.compose(["model=tiny", f"ablation={name}", "probes=counting"]))
        assert made["parameters"] > 2 * 43_712 and abs(made["parameters_active"] / 43_712 - 1) < 0.03
