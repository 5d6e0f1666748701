"""One product for queries, keys and values is the three products, forward and backward, under the same names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from gptlab import compose
from gptlab.config import Config, ModelConfig
from gptlab.model import build
from gptlab.model.attention import MultiHeadAttention
from gptlab.probes import Subject
from gptlab.training import train
from gptlab.training.kernels.qkv import joined_qkv

SMALL: dict[str, Any] = {"vocab_size": 31, "context_length": 12, "emb_dim": 16, "n_heads": 4, "n_layers": 2}
IDS = torch.randint(31, (2, 12), generator=torch.Generator().manual_seed(0))
WORDS = ["model=toy_lesson", "train=toy", "train.budget=30", "probes=counting", "evaluation.every=10"]


class Products(TorchDispatchMode):
    """The widths of what is multiplied, of two-dimensional products."""

    def __init__(self) -> None:
        super().__init__()
        self.widths: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func._overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            self.widths.append(found.shape[1])
        return found


def grown(joined: bool, **changes: Any) -> dict[str, Tensor]:
    """The output, and the gradient of every parameter."""
    model = build(Config(model=ModelConfig(**{**SMALL, **changes}), seed=3))
    with joined_qkv(joined):
        output = model(IDS)
    output.square().mean().backward()
    return {"output": output} | {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"qkv_bias": True}, {"n_kv_heads": 2}, {"n_kv_heads": 1, "qkv_bias": True}, {"position": "rope"},
        {"attention": "differential"}, {"options": {"attention": {"qk_norm": "rms_full"}}},
        {"options": {"attention": {"gate": "headwise"}}},
    ],
)  # fmt: skip
def test_one_product_is_three(changes: dict[str, Any]) -> None:
    one, three = grown(True, **changes), grown(False, **changes)
    assert list(one) == list(three)
    for name, expected in three.items():
        torch.testing.assert_close(one[name], expected)


def test_it_is_one_product_and_ends_with_its_context() -> None:
    layer = build(Config(model=ModelConfig(**SMALL))).trf_blocks[0].att  # type: ignore[union-attr, index]
    x = torch.randn(24, 16, generator=torch.Generator().manual_seed(1))[None]
    found = []
    for wanted in (True, False):
        with joined_qkv(wanted), Products() as products, torch.no_grad():
            layer.queries_keys_values(x)
        found.append(products.widths)
    assert found == [[48], [16, 16, 16]]
    with pytest.raises(KeyError), joined_qkv(True):
        raise KeyError
    assert not MultiHeadAttention.joined


def test_a_layer_of_somebody_else_is_called() -> None:
    layer = build(Config(model=ModelConfig(**SMALL))).trf_blocks[0].att  # type: ignore[union-attr, index]

    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    with torch.random.fork_rng():
        layer.W_key = Doubled(16, 16, bias=False)
    x = torch.ones(1, 3, 16)
    with joined_qkv(True):
        found = layer.queries_keys_values(x)[1]
    torch.testing.assert_close(found, layer.queries_keys_values(x)[1])


def test_a_run_learns_the_same_and_its_weights_have_their_names(tmp_path: Path) -> None:
    losses, names = [], []
    for name in ("separate", "joined"):
        subject = Subject(compose([*WORDS, f"train.kernels.qkv={name}"]))
        found = train(subject, tmp_path / name)
        losses.append(found.metrics["final_loss"])
        names.append(list(subject.model.state_dict()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert names[0] == names[1] and not MultiHeadAttention.joined
