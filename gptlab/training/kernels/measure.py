"""Which kernels are fastest here, on the shapes of one run: candidates take turns, and the medians are compared.

Forward and backward together, through the very contexts in which a training calls them, so that what is won inside a
kernel and lost around it shows. One without a clear lead over the reference is not taken.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gptlab.config import Config
from gptlab.kernels import PLACES, PLAIN, open_places
from gptlab.model import build, learning_rate_scales
from gptlab.model.attention import MultiHeadAttention
from gptlab.model.feed_forward import hidden_width
from gptlab.training.kernels.attention import fast_attention
from gptlab.training.kernels.linear import available, fast_linear
from gptlab.training.kernels.qkv import joined_qkv
from gptlab.training.optimizer import Updates

LEAD = 0.05  # a candidate takes at most 1 - LEAD of the reference's time, or is not taken
SECONDS = 0.4  # for one place, as far as FEWEST rounds need no more
FEWEST, MOST = 3, 25  # rounds, in each of which every candidate has its turn
TURN = 1e-3  # seconds that a turn takes at least: shorter ones are repeated
LARGEST = 2048  # of any side of a product: what is larger runs no faster, and only takes longer to time
WINDOW = 256  # tokens of a row, where attention is timed only because of what it makes of its inputs' layout
HEAVIEST = 4e9  # multiplications of one turn, forward and backward
SMALL = 2**20  # weights, below which one buffer for all of them may win

Turn = Callable[[], Any]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Timing:
    """One candidate at one place: the median time of its turns in seconds."""

    place: str
    kernel: str
    seconds: float


def measure(config: Config, clock: Clock = time.perf_counter) -> list[Timing]:
    """Time all candidates of the places that `config` leaves open, the reference among them."""
    found = []
    for place, candidates in contestants(config):
        found += [Timing(place, name, seconds) for name, seconds in race(candidates, clock).items()]
    return found


def choose(timings: list[Timing]) -> dict[str, str]:
    """Place -> kernel, for each place that was measured."""
    chosen = {}
    for place in PLACES:
        times = {timing.kernel: timing.seconds for timing in timings if timing.place == place}
        if times:
            best = min(times, key=lambda name: times[name])
            chosen[place] = best if times[best] <= (1 - LEAD) * times[PLAIN[place]] else PLAIN[place]
    return chosen


def race(candidates: Mapping[str, Turn], clock: Clock = time.perf_counter) -> dict[str, float]:
    """Median seconds of a turn, by candidate. They take turns, so that a busy machine hurts all alike."""
    start, repeats = clock(), 1
    for turn in candidates.values():
        turn()  # warm
        before = clock()
        turn()
        repeats = max(repeats, math.ceil(TURN / max(clock() - before, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(MOST):
        if number >= FEWEST and clock() - start > SECONDS:
            break
        for name, turn in candidates.items():
            before = clock()
            for _ in range(repeats):
                turn()
            times[name].append((clock() - before) / repeats)
    return {name: statistics.median(found) for name, found in times.items()}


def contestants(config: Config) -> Iterator[tuple[str, dict[str, Turn]]]:
    """(place, its candidates), where there is a choice on this machine."""
    places = open_places(config)
    if "linear" in places and available():
        yield "linear", {name: _linear(config, fast=name == "onednn") for name in PLACES["linear"]}
    if "qkv" in places:
        yield "qkv", {name: _qkv(config, joined=name == "joined") for name in PLACES["qkv"]}
    if "attention" in places:
        yield "attention", {name: _attention(config, fast=name == "kept") for name in PLACES["attention"]}
    if "optimizer" in places and _weights(config) < SMALL:
        yield "optimizer", {name: _optimizer(config, flat=name == "flat") for name in PLACES["optimizer"]}


def products(config: Config) -> dict[tuple[int, int, int], float]:
    """(rows, inputs, outputs) -> how often, of the linear layers of a GPT of these sizes, with no side above LARGEST.

    A product that is cut counts as often as it would go into the whole one.
    """
    model, train = config.model, config.train
    dim, hidden = model.emb_dim, hidden_width(model.emb_dim, model.expansion, model.hidden_dim, model.hidden_multiple)
    rows = train.batch_size // train.accumulate * (train.context or model.context_length)
    layers = {(dim, dim): 4 * model.n_layers, (dim, hidden): model.n_layers, (hidden, dim): model.n_layers}
    found: dict[tuple[int, int, int], float] = {}
    for (inputs, outputs), count in [*layers.items(), ((dim, model.vocab_size), 1)]:
        shape = (min(rows, LARGEST), min(inputs, LARGEST), min(outputs, LARGEST))
        if count:
            found[shape] = found.get(shape, 0.0) + count * rows * inputs * outputs / math.prod(shape)
    return _within(found)


def _within(shapes: dict[tuple[int, int, int], float]) -> dict[tuple[int, int, int], float]:
    """The shapes with rows taken off as long as one turn at all of them would take too long for a measurement."""
    while 3 * sum(map(math.prod, shapes)) > HEAVIEST and max(rows for rows, *_ in shapes) > 256:
        fewer = {}
        for (rows, inputs, outputs), count in shapes.items():
            kept = max(rows // 2, 256)
            fewer[kept, inputs, outputs] = count * rows / kept
        shapes = fewer
    return shapes


def _linear(config: Config, *, fast: bool) -> Turn:
    pairs = []
    for (rows, inputs, outputs), count in products(config).items():
        x, weight, above = _random(rows, inputs), _random(outputs, inputs), _random(rows, outputs)
        pairs.append((x.requires_grad_(), weight.requires_grad_(), above, count))
    heaviest = max(count for *_, count in pairs)

    def turn() -> None:
        for x, weight, above, count in pairs:
            # Each shape at least once, and the others as often as they come beside the most frequent one.
            for _ in range(max(1, round(2 * count / heaviest))):
                with fast_linear(fast):
                    y = F.linear(x, weight)
                torch.autograd.grad(y, (x, weight), above)

    return turn


def _qkv(config: Config, *, joined: bool) -> Turn:
    """The products and the attention that reads them: parts of one product are views, with strides of their own."""
    model, train = config.model, config.train
    length = min(train.context or model.context_length, WINDOW)
    rows = min(train.batch_size // train.accumulate, max(1, LARGEST // length))
    with torch.random.fork_rng(devices=[]):
        layer = MultiHeadAttention(
            model.emb_dim, model.n_heads, model.n_kv_heads, model.causal, model.qkv_bias, head_dim=model.head_dim
        )
    x = _random(rows, length, model.emb_dim).requires_grad_()
    leaves = [x, *(p for part in (layer.W_query, layer.W_key, layer.W_value) for p in part.parameters())]
    shared = layer.n_kv_heads != layer.n_heads

    def turn() -> None:
        with joined_qkv(joined), torch.autocast("cpu", torch.bfloat16, enabled=train.precision == "bf16"):
            q, k, v = layer.queries_keys_values(x)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=model.causal, enable_gqa=shared)
        torch.autograd.grad(y.sum(), leaves)

    return turn


def _attention(config: Config, *, fast: bool) -> Turn:
    model, train = config.model, config.train
    length = train.context or model.context_length
    rows = min(train.batch_size // train.accumulate, max(1, LARGEST // length))
    shape = (rows, model.n_heads, length, model.head_dim or model.emb_dim // model.n_heads)
    q, k, v, above = (_random(*shape).bfloat16() for _ in range(4))
    leaves = tuple(x.requires_grad_() for x in (q, k, v))

    def turn() -> None:
        with fast_attention(fast):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=model.causal)
        torch.autograd.grad(y, leaves, above)

    return turn


def _optimizer(config: Config, *, flat: bool) -> Turn:
    model = build(config)
    updates = Updates(model, config.train, learning_rate_scales(model, config.model), flat=flat)
    updates.set_rate(1.0)
    weights = list(model.parameters())
    gradients = [torch.full_like(weight, 1e-3) for weight in weights]

    def turn() -> None:
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        updates.clip()
        updates.step()

    return turn


def _weights(config: Config) -> int:
    """About how many weights there are."""
    model = config.model
    hidden = hidden_width(model.emb_dim, model.expansion, model.hidden_dim, model.hidden_multiple)
    block = 4 * model.emb_dim**2 + 2 * model.emb_dim * hidden
    return model.n_layers * block + (1 if model.tie_weights else 2) * model.vocab_size * model.emb_dim


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
