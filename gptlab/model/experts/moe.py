"""The mixture of experts as a feed-forward layer: (B, T, emb_dim) -> (B, T, emb_dim), and what keeps experts busy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from gptlab.errors import wrong_value
from gptlab.model.contract import Loss
from gptlab.model.experts.bank import GatedBank, PlainBank, counts_of
from gptlab.model.experts.routing import OPTIONS, Router, Routing, load_balance
from gptlab.model.feed_forward import MLP, Gated, hidden_width
from gptlab.registry import register

_PLAIN = "mlp"


class Mixed(NamedTuple):
    """The stream, and auxiliary losses as they are weighted; None where their weight is 0."""

    y: Tensor
    load_balance: Loss | None
    router_z: Loss | None


@register("feed_forward", "moe")
class MixtureOfExperts(nn.Module):
    """Sum over the top_k experts that the router chooses for a token of weight * expert(x) (Shazeer et al. 2017).

    No token is dropped: an expert takes all that choose it (as in MegaBlocks, Gale et al. 2022).

        x ──┬── router ── top_k ── weights ─────────┐
            ├── the chosen of n_experts ── outputs ─(*)── sum ──(+)──>
            └── shared experts, if any, for each token ─────────┘

    n_experts    of the width that another feed-forward layer would have: hidden_dim, or expansion * emb_dim
    top_k        how many of them a token goes to
    expert       `mlp`, or a gated kind: glu, swiglu, geglu, ...
    router       `softmax` over the experts, or `sigmoid` of each (DeepSeek-V3)
    normalised   weights of a token add up to 1 (Mixtral, Qwen3); else they are the scores themselves (Switch, OLMoE)
    scale        a factor on the weights (DeepSeek's routed_scaling_factor)
    shared       as many experts more for every token, as one layer of that many times the width (DeepSeekMoE, Dai 2024)
    balance      weight of `load_balance`, the auxiliary loss that keeps experts equally busy (Fedus et al. 2021)
    bias_rate    above 0: a bias in choosing does so without a loss (Wang et al. 2024); use balance=0 or a small one
    router_z     weight of the mean of (ln sum exp(router logits))^2 (ST-MoE, Zoph et al. 2022: 1e-3)
    """

    def __init__(
        self,
        emb_dim: int,
        make_part: Callable[..., nn.Module],
        expansion: float = 4.0,
        feed_forward_bias: bool = True,
        drop_feed_forward: float = 0.0,
        hidden_dim: int | None = None,
        hidden_multiple: int | None = None,
        n_experts: int = 8,
        top_k: int = 2,
        expert: str = _PLAIN,
        router: str = "softmax",
        normalised: bool = True,
        scale: float = 1.0,
        shared: int = 0,
        balance: float = 0.01,
        bias_rate: float = 0.0,
        router_z: float = 0.0,
    ) -> None:
        super().__init__()
        for name, value in (("shared", shared), ("balance", balance), ("router_z", router_z)):
            if not value >= 0:
                raise wrong_value(f"{OPTIONS}.{name}", value, "must be 0 or more.", code="experts-option-negative")
        width = hidden_width(emb_dim, expansion, hidden_dim, hidden_multiple)
        self.router = Router(emb_dim, n_experts, top_k, router, normalised, scale, bias_rate)
        kind, activation = _kind(expert, make_part)
        self.experts = kind(n_experts, activation, emb_dim, width, feed_forward_bias, drop_feed_forward)
        self.shared = make_part("feed_forward", expert, hidden_dim=shared * width) if shared else None
        self.balance, self.router_z = balance, router_z

    @staticmethod
    def inner_parts(options: Mapping[str, Any]) -> list[tuple[str, str]]:
        """A layer of the kind that the experts are."""
        return [("feed_forward", str(options.get("expert", _PLAIN)))]

    def forward(self, x: Tensor) -> Mixed:
        routing = self.routing(x)
        y = self._mixed(x.flatten(0, -2), routing).view_as(x)
        if self.shared is not None:
            y = y + self.shared(x)
        balance = self.balance * load_balance(routing, len(x)) if self.balance else None
        router_z = self.router_z * routing.logits.logsumexp(-1).square().mean() if self.router_z else None
        return Mixed(y, balance, router_z)

    def routing(self, x: Tensor) -> Routing:
        """Where each token of x (B, T, emb_dim) goes, in their order."""
        found: Routing = self.router(x.flatten(0, -2))
        return found

    def _mixed(self, x: Tensor, routing: Routing) -> Tensor:
        """(N, emb_dim)."""
        top_k = self.router.top_k
        order = routing.chosen.flatten().argsort(stable=True)  # of N * top_k places, token by token
        rows = x.index_select(0, order // top_k)
        y = self.experts(rows, order, counts_of(routing.chosen, self.experts.number))
        back = y.index_select(0, order.argsort()).unflatten(0, (-1, top_k))  # (N, top_k, emb_dim)
        mixed: Tensor = (back * routing.weights.to(back.dtype)[..., None]).sum(1)
        return mixed

    def idle_parameters(self) -> int:
        """Of the experts that a token does not go to."""
        each = sum(parameter.numel() for parameter in self.experts.parameters()) // self.experts.number
        return each * (self.experts.number - self.router.top_k)

    def nonlinearities(self) -> list[nn.Module]:
        """None that every token meets: a unit without a gradient may be one whose expert nobody chose."""
        return []

    def extra_repr(self) -> str:
        return f"balance={self.balance:g}, router_z={self.router_z:g}"


def _kind(expert: str, make_part: Callable[..., nn.Module]) -> tuple[type[PlainBank] | type[GatedBank], nn.Module]:
    """The bank of experts of this kind, and their activation: both as a layer of that kind has them."""
    like = None if expert == "moe" else make_part("feed_forward", expert, emb_dim=1, hidden_dim=1, hidden_multiple=None)
    if isinstance(like, MLP):
        return PlainBank, like.layers[1]
    if isinstance(like, Gated):
        return GatedBank, like.activation
    raise wrong_value(
        f"{OPTIONS}.expert", expert, "must be mlp, or a gated layer such as swiglu.", code="expert-kind",
        suggestion="swiglu",
    )  # fmt: skip
