"""Where and under which settings of torch a run is trained. All of them are put back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from gptlab import streams
from gptlab.config import TrainConfig
from gptlab.training.kernels.attention import fast_attention
from gptlab.training.kernels.linear import fast_linear

# Fewer weights times tokens than this, and a step is mostly the cost of calling operators.
TINY_PRODUCTS = 2**23


def choose_device(name: str) -> torch.device:
    """`auto` is the first CUDA device where there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def is_tiny(train: TrainConfig, model: nn.Module) -> bool:
    """Whether choosing a kernel costs more than it saves."""
    weights = sum(parameter.numel() for parameter in model.parameters())
    return weights * train.batch_size * (train.context or 1) < TINY_PRODUCTS


@contextmanager
def conditions(train: TrainConfig, device: torch.device) -> Iterator[None]:
    """Determinism and the global random state as the run needs them, for the time of the body."""
    strict = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.use_deterministic_algorithms(train.deterministic or strict)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(strict, warn_only=warn_only)


@contextmanager
def precision(train: TrainConfig, device: torch.device, tiny: bool) -> Iterator[None]:
    """bf16 for the matrix products where the run asks for it: weights, gradients and sums stay in fp32.

    In fp32 on a CPU, products take oneDNN, and in bf16 attention goes its own way; where everything is compiled, the
    compiler chooses.
    """
    if train.precision == "bf16":
        plain_cpu = device.type == "cpu" and not train.compile
        with torch.autocast(device.type, dtype=torch.bfloat16), fast_attention(plain_cpu):
            yield
    else:
        with fast_linear(device.type == "cpu" and not tiny and not train.compile):
            yield


def seed_dropout(seed: int, step: int, part: int, device: torch.device) -> None:
    """Put the global generators at the start of the stream of this step: what a resumed run draws is what it drew."""
    number = streams.stream_seed(seed, "dropout", step, part)
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(number)
