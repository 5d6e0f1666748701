"""Which experts a token goes to, and how much each of them counts."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlab.errors import unknown, wrong_value
from gptlab.model.layers import Linear

OPTIONS = "model.options.feed_forward"
ROUTERS = ("softmax", "sigmoid")


class Routing(NamedTuple):
    """Of N tokens: the router's logits and the experts' scores (N, n_experts), both at least float32; the experts that
    each token goes to and their weights, (N, top_k). Scores add up to 1 for `softmax`, and lie in (0, 1) for `sigmoid`.
    """

    logits: Tensor
    scores: Tensor
    chosen: Tensor
    weights: Tensor

    def shares(self) -> Tensor:
        """The scores of a token as parts of 1, (N, n_experts)."""
        return self.scores / self.scores.sum(-1, keepdim=True)

    def load(self) -> Tensor:
        """How many tokens each expert has, (n_experts,) float32; they add up to N * top_k."""
        number = self.scores.shape[-1]
        return F.one_hot(self.chosen.flatten(), number).sum(0, dtype=torch.float32)


@runtime_checkable
class ShowsRouting(Protocol):
    """A part that sends tokens to experts, and says where, called with what its `forward` is called with."""

    def routing(self, x: Tensor) -> Routing: ...


class Router(nn.Module):
    """Scores s = softmax(W x) or sigmoid(W x) in float32; the top_k largest of s + bias are chosen, and weigh s.

    `normalised` divides the weights of a token by their sum, `scale` multiplies them. The bias is no parameter, and
    weighs nothing: after each step of training it rises by `bias_rate` for experts with fewer tokens than the mean and
    falls for those with more (loss-free balancing, Wang et al. 2024; DeepSeek-V3).
    """

    bias: Tensor | None
    load: Tensor

    def __init__(
        self, emb_dim: int, n_experts: int, top_k: int, kind: str, normalised: bool, scale: float, bias_rate: float
    ) -> None:
        super().__init__()
        _check(n_experts, top_k, kind, normalised, bias_rate)
        self.project = Linear(emb_dim, n_experts, bias=False)
        self.top_k, self.kind, self.normalised, self.scale, self.bias_rate = top_k, kind, normalised, scale, bias_rate
        self.register_buffer("bias", torch.zeros(n_experts) if bias_rate else None)
        self.register_buffer("load", torch.zeros(n_experts) if bias_rate else None, persistent=False)  # of this step

    def forward(self, x: Tensor) -> Routing:
        """x (N, emb_dim)."""
        exact = torch.promote_types(x.dtype, torch.float32)  # the choice hangs on small differences
        with _without_autocast(x):
            logits = F.linear(x.to(exact), self.project.weight.to(exact))
        scores = logits.softmax(-1) if self.kind == "softmax" else logits.sigmoid()
        ranked = scores if self.bias is None else scores + self.bias
        chosen = ranked.topk(self.top_k, dim=-1).indices
        weights = scores.gather(-1, chosen)
        if self.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        found = Routing(logits, scores, chosen, weights if self.scale == 1.0 else weights * self.scale)
        if self.training and self.bias is not None:
            self.load += found.load()
        return found

    @torch.no_grad()
    def after_step(self) -> None:
        """Move the bias by what the tokens of this step, of all its micro-batches, have chosen."""
        if self.bias is not None:
            self.bias += self.bias_rate * torch.sign(self.load.mean() - self.load)
            self.load.zero_()

    def extra_repr(self) -> str:
        weighed = f"normalised={self.normalised}, scale={self.scale:g}"
        return f"{self.kind}, top_k={self.top_k}, {weighed}, bias_rate={self.bias_rate:g}"


def _without_autocast(x: Tensor) -> torch.autocast:
    kind = "cpu" if x.is_meta else x.device.type
    return torch.autocast(kind, enabled=False)


def _check(n_experts: int, top_k: int, kind: str, normalised: bool, bias_rate: float) -> None:
    if kind not in ROUTERS:
        raise unknown(f"{OPTIONS}.router", kind, ROUTERS)
    if n_experts < 2:
        raise wrong_value(f"{OPTIONS}.n_experts", n_experts, "must be 2 or more.", code="experts-too-few")
    if not 1 <= top_k <= n_experts:
        said = f"must be between 1 and n_experts={n_experts}."
        raise wrong_value(f"{OPTIONS}.top_k", top_k, said, code="top-k-of-experts", n_experts=n_experts)
    if top_k == 1 and normalised:
        raise wrong_value(
            f"{OPTIONS}.top_k",
            top_k,
            "with normalised=true the one expert always weighs 1, and the loss does not reach the router. "
            f"Add {OPTIONS}.normalised=false.",
            code="one-expert-normalised",
            suggestion=f"{OPTIONS}.normalised=false",
        )
    if not bias_rate >= 0:
        raise wrong_value(f"{OPTIONS}.bias_rate", bias_rate, "must be 0 or more.", code="bias-rate-negative")


def load_balance(routing: Routing, rows: int) -> Tensor:
    """n_experts * sum over experts of (share of the choices) * (mean share of the scores): 1 where all are equal.

    Taken within each of the `rows` sequences that the tokens are, and their mean: so it is the same however a batch is
    cut into micro-batches. Of one sequence it is the loss of Switch (Fedus et al. 2021), of top_k > 1 divided by top_k.
    """
    number = routing.scores.shape[-1]
    asked = routing.shares().unflatten(0, (rows, -1)).mean(1)  # (rows, n_experts)
    chosen = F.one_hot(routing.chosen, number).to(asked.dtype).mean(1)  # (N, n_experts), adding up to 1
    return number * (chosen.unflatten(0, (rows, -1)).mean(1) * asked).sum(-1).mean()
