"""Feed-forward layers: (B, T, emb_dim) -> (B, T, emb_dim), the same for each token, nothing crosses tokens."""

from __future__ import annotations

from torch import Tensor, nn

from gptlab.model.layers import Linear
from gptlab.registry import register


def hidden_width(emb_dim: int, expansion: float) -> int:
    """Width of the hidden layer: expansion * emb_dim to the nearest integer (a half goes up), at least 1."""
    return max(1, int(expansion * emb_dim + 0.5))


@register("feed_forward", "mlp")
class MLP(nn.Module):
    """W2 act(W1 x + b1) + b2, with a hidden width of expansion * emb_dim, rounded to the nearest integer."""

    def __init__(self, emb_dim: int, activation: nn.Module, expansion: float = 4.0) -> None:
        super().__init__()
        width = hidden_width(emb_dim, expansion)
        self.layers = nn.Sequential(Linear(emb_dim, width), activation, Linear(width, emb_dim, into_stream=True))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@register("feed_forward", "identity")
def identity() -> nn.Identity:
    """Returns its input."""
    return nn.Identity()
