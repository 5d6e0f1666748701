"""Each key of a training reaches what it names: an independent loop, written by hand, ends at the same weights.

The loop below knows no file of gptlab.training. Each case moves keys away from their defaults, and has to end elsewhere
than the run without them, so that a key which is dropped on the way cannot pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlab.config import Config
from gptlab.model import build, learning_rate_scales
from gptlab.probes import Subject
from gptlab.streams import stream_seed
from tests.support.training import toy, trained

STEPS = 5
BASE = (
    "data=markov", "model.vocab_size=32", "model.context_length=8", "model.qkv_bias=true", "model.drop_rate=0",
    "model.tie_weights=false", "train.learning_rate=3e-2", "train.clip=null",
)  # fmt: skip
ADAM = ("train.eps=1e-3",)  # far above the rounding of gradients that are 0, which Adam would blow up
DECAY = ("train.weight_decay=0.3",)
SGD = ("train.optimizer=sgd", "train.learning_rate=0.3")

CASES: dict[str, tuple[str, ...]] = {
    "learning_rate": ("train.learning_rate=7e-3",),
    "batch_size": ("train.batch_size=6",),
    "context": ("train.context=5",),
    "seed": ("seed=7",),
    "budget": ("train.budget=3",),
    "budget in tokens": ("train.budget_unit=tokens", "train.budget=100"),
    "weight_decay": ("train.weight_decay=0.3",),
    "decay_embeddings": (*DECAY, "train.decay_embeddings=false"),
    "decay_vectors": (*DECAY, "train.decay_vectors=true"),
    "beta1": ("train.beta1=0.5",),
    "beta2": ("train.beta2=0.7",),
    "eps": ("train.eps=3e-2",),
    "clip": ("train.clip=0.05",),
    "clip in parts": ("train.clip=0.05", "train.accumulate=2"),
    "warmup": ("train.warmup=4",),
    "linear": ("train.schedule=linear", "train.warmup=2"),
    "cosine": ("train.schedule=cosine", "train.final_rate=0.2"),
    "wsd": ("train.schedule=wsd", "train.decay_share=0.6", "train.final_rate=0.1"),
    "sgd": (*SGD,),
    "momentum": (*SGD, "train.momentum=0.3"),
    "sgd clips and decays": (*SGD, "train.clip=0.05", "train.weight_decay=0.2"),
    "tied": ("model.tie_weights=true", *DECAY),
    "tied without decay": ("model.tie_weights=true", *DECAY, "train.decay_embeddings=false"),
    "mup": ("model.init=mup",),
    "dropout": ("model.drop_rate=0.3",),
    "dropout in parts": ("model.drop_rate=0.3", "train.accumulate=2"),
    "attention dropout": ("model.drop_attention=0.4",),
    "shortcut dropout": ("model.drop_shortcut=0.4",),
    "embedding dropout": ("model.drop_embedding=0.4",),
    "feed-forward dropout": ("model.drop_feed_forward=0.4",),
}


def by_hand(config: Config) -> dict[str, Tensor]:
    """The weights after training, by the formulas alone."""
    train, subject = config.train, Subject(config)
    model = build(config).train()
    weights = dict(model.named_parameters())
    scales = learning_rate_scales(model, config.model)
    first = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    second = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    context = train.context or config.model.context_length
    each = {"steps": 1, "tokens": train.batch_size * context}[train.budget_unit]
    steps = math.ceil((train.budget or 0) / each)
    for step in range(steps):
        batch = subject.source.train_batch(step, train.batch_size, context, config.seed)  # type: ignore[union-attr]
        model.zero_grad()
        size = train.batch_size // train.accumulate
        for part in range(train.accumulate):
            rows = slice(part * size, (part + 1) * size)
            torch.default_generator.manual_seed(stream_seed(config.seed, "dropout", step, part))
            logits = model(batch.inputs[rows])
            loss = F.cross_entropy(logits.flatten(0, 1), batch.targets[rows].flatten(), reduction="sum")
            (loss / batch.targets.numel()).backward()
        norm = math.sqrt(sum(float(w.grad.double().square().sum()) for w in weights.values() if w.grad is not None))
        shrink = 1.0 if train.clip is None else min(1.0, train.clip / norm)
        share = rate_share(config, step, steps)
        with torch.no_grad():
            for name, weight in weights.items():
                assert weight.grad is not None
                grad, rate = weight.grad * shrink, train.learning_rate * share * scales[name]
                decay = train.weight_decay if decays(name, weight, config) else 0.0
                if train.optimizer == "sgd":
                    grad = grad + decay * weight
                    first[name] = grad if step == 0 else train.momentum * first[name] + grad
                    weight -= rate * first[name]
                    continue
                weight *= 1 - rate * decay
                first[name] = train.beta1 * first[name] + (1 - train.beta1) * grad
                second[name] = train.beta2 * second[name] + (1 - train.beta2) * grad**2
                mean = first[name] / (1 - train.beta1 ** (step + 1))
                square = second[name] / (1 - train.beta2 ** (step + 1))
                weight -= rate * mean / (square.sqrt() + train.eps)
    return weights


def decays(name: str, weight: nn.Parameter, config: Config) -> bool:
    if name in ("tok_emb.weight", "pos_emb.weight"):
        return config.train.decay_embeddings
    return config.train.decay_vectors if weight.dim() == 1 else True


def rate_share(config: Config, step: int, steps: int) -> float:
    train = config.train
    if step < train.warmup:
        return (step + 1) / train.warmup
    if train.schedule == "constant":
        return 1.0
    start = train.warmup if train.schedule != "wsd" else max(train.warmup, steps - round(train.decay_share * steps))
    gone = min(1.0, max(0.0, (step - start) / (steps - 1 - start)))
    if train.schedule == "cosine":
        return train.final_rate + (1 - train.final_rate) * (1 + math.cos(math.pi * gone)) / 2
    return 1 - gone * (1 - train.final_rate)


def distance(some: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> float:
    """The largest difference between two weights of one name and shape."""
    return max(float((some[n] - others[n]).detach().abs().max()) for n in some if some[n].shape == others[n].shape)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    _, model = trained(toy(*BASE, *ADAM, steps=STEPS), tmp_path_factory.mktemp("plain"))
    return dict(model.named_parameters())


@pytest.mark.parametrize("name", CASES)
def test_a_training_is_what_the_formulas_say(name: str, tmp_path: Path, plain: dict[str, Tensor]) -> None:
    optimizer = () if "train.optimizer=sgd" in CASES[name] else ADAM
    config = toy(*BASE, *optimizer, *CASES[name], steps=STEPS)
    _, model = trained(config, tmp_path)
    ended = dict(model.named_parameters())
    with torch.random.fork_rng():
        expected = by_hand(config)
    assert distance(ended, expected) < 1e-4, "not what the formulas give"
    assert distance(ended, plain) > 2e-3, "the key changed nothing"


def test_the_plain_run_too(plain: dict[str, Tensor]) -> None:
    with torch.random.fork_rng():
        assert distance(plain, by_hand(toy(*BASE, *ADAM, steps=STEPS))) < 2e-5
