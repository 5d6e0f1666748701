"""Where and under which settings of torch a run is trained. All of them are put back afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from gptlab import streams
from gptlab.config import Config, TrainConfig
from gptlab.kernels import PLAIN, resolved
from gptlab.training.kernels.attention import fast_attention
from gptlab.training.kernels.linear import available, fast_linear
from gptlab.training.kernels.qkv import joined_qkv


def choose_device(name: str) -> torch.device:
    """`auto` is the first CUDA device where there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def usable(config: Config) -> tuple[dict[str, str], list[str]]:
    """(place -> kernel that this machine has, of those that the run is to take; a sentence for each that it lacks)."""
    kernels, warnings = resolved(config), []
    here = {"linear": available(), "qkv": True, "attention": True}
    for place, there in here.items():
        if kernels[place] != PLAIN[place] and not (there and choose_device(config.train.device).type == "cpu"):
            warnings.append(f"kernels: this machine has no {place}={kernels[place]}, and {PLAIN[place]} was taken")
            kernels[place] = PLAIN[place]
    return kernels, warnings


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
def precision(train: TrainConfig, device: torch.device, kernels: Mapping[str, str]) -> Iterator[None]:
    """bf16 for the matrix products where the run asks for it: weights, gradients and sums stay in fp32.

    `kernels` (`usable`) say how products in fp32, queries with keys and values, and attention in bf16 are computed.
    """
    with joined_qkv(kernels["qkv"] == "joined"):
        if train.precision == "bf16":
            with torch.autocast(device.type, dtype=torch.bfloat16), fast_attention(kernels["attention"] == "kept"):
                yield
        else:
            with fast_linear(kernels["linear"] == "onednn"):
                yield


def seed_dropout(seed: int, step: int, part: int, device: torch.device) -> None:
    """Put the global generators at the start of the stream of this step: what a resumed run draws is what it drew."""
    number = streams.stream_seed(seed, "dropout", step, part)
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(number)
