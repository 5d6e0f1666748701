"""The kernels by name: several ways to compute one thing, and which of them a run takes.

    linear     torch, onednn     products of fp32 training: as torch does them (MKL), or through oneDNN
    qkv        separate, joined  queries, keys and values of a layer: three products on a CPU, or one
    attention  torch, kept       bf16 attention on a CPU: torch's, or with the weights of all heads kept
    optimizer  fused, flat       one call for each tensor, or all weights in one buffer
    loss       plain, chunked    all logits at once, or a chunk of tokens at a time

The first of each is the reference, what plain torch does. `train.kernels` is `reference`, `auto` (a measurement chooses
once for a study: `gptlab.running.kernels`), or names for some places, with the others left to the measurement. The
results of two kernels differ in the last bits, so a run records what it took. Free of torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gptlab import registry
from gptlab.config import Config, TrainConfig
from gptlab.errors import ConfigError, unknown

PLACES: dict[str, tuple[str, ...]] = {
    "linear": ("torch", "onednn"),
    "qkv": ("separate", "joined"),
    "attention": ("torch", "kept"),
    "optimizer": ("fused", "flat"),
    "loss": ("plain", "chunked"),
}
AUTO, REFERENCE = "auto", "reference"
PLAIN = {place: names[0] for place, names in PLACES.items()}

JOINABLE = ("multi_head", "differential")  # attentions with W_query, W_key and W_value
LONGEST = 512  # tokens of `kept`; beyond that, the weights that are kept outgrow all other activations
CHUNK_ELEMENTS = 2**25  # logits held at a time by `chunked`: 128 MiB in fp32
FEWEST_ROWS = 256  # of a chunk; below that, its matrix products run slowly


def chunk_rows(vocab_size: int) -> int:
    """How many tokens make a chunk of logits."""
    return max(FEWEST_ROWS, CHUNK_ELEMENTS // vocab_size)


def checked(given: Any) -> str | dict[str, str]:
    """`train.kernels` in its one spelling. ConfigError for a place or a kernel that does not exist."""
    if isinstance(given, Mapping):
        for place, name in given.items():
            if place not in PLACES:
                raise unknown("train.kernels", str(place), PLACES)
            if name not in PLACES[place]:
                raise unknown(f"train.kernels.{place}", str(name), PLACES[place])
        return {place: str(given[place]) for place in PLACES if place in given} or AUTO
    if given not in (AUTO, REFERENCE):
        raise unknown("train.kernels", "null" if given is None else str(given), (AUTO, REFERENCE, "{linear: onednn}"))
    return str(given)


def named(train: TrainConfig) -> dict[str, str]:
    """Place -> kernel, as far as the config itself says it."""
    if train.kernels == REFERENCE:
        return dict(PLAIN)
    return dict(train.kernels) if isinstance(train.kernels, Mapping) else {}


def check(config: Config) -> None:
    """ConfigError for a kernel that the run would not use. `config` is settled."""
    for place, name in named(config.train).items():
        why = unused(config, place) if name != PLAIN[place] else ""
        if why:
            raise ConfigError(
                f"train.kernels.{place}={name}: would be ignored, because {why}.",
                code="kernel-ignored",
                key=f"train.kernels.{place}",
                value=name,
                allowed=[PLAIN[place]],
            )


def unused(config: Config, place: str) -> str:
    """Why nothing but the reference can be taken at a place by this run; empty where something can."""
    train = config.train
    if place in ("linear", "qkv", "attention"):
        if train.device.startswith("cuda"):
            return f"train.device={train.device} is no CPU"
        if train.compile:
            return "train.compile leaves it to the compiler"
    if place == "linear" and train.precision != "fp32":
        return f"train.precision={train.precision} is not fp32"
    if place == "qkv" and config.model.attention not in JOINABLE:
        return f"model.attention={config.model.attention} has no three products to join"
    if place == "attention" and train.precision != "bf16":
        return f"train.precision={train.precision} is not bf16"
    if place == "attention" and (train.context or config.model.context_length) > LONGEST:
        return f"a context above {LONGEST} tokens is left to torch"
    if place == "loss" and _tokens(config) <= chunk_rows(config.model.vocab_size):
        return "the logits of a part fit into one chunk"
    if place == "optimizer" and not registry.get("optimizer", train.optimizer).facts["elementwise"]:
        return f"train.optimizer={train.optimizer} does not update each number by itself"
    return ""


def resolved(config: Config, measured: Mapping[str, str] | None = None) -> dict[str, str]:
    """Place -> kernel, for every place: what the config names, else what was `measured`, else the reference.

    Of the loss memory decides, not time: chunks, where the logits of a part do not fit into one.
    """
    found = {**PLAIN, "loss": "chunked", **(measured or {}), **named(config.train)}
    return {
        place: PLAIN[place] if name != PLAIN[place] and unused(config, place) else name for place, name in found.items()
    }


def _tokens(config: Config) -> int:
    """Tokens of a part of a batch."""
    train = config.train
    return train.batch_size // train.accumulate * (train.context or config.model.context_length)


def with_kernels(config: Config, kernels: Mapping[str, str]) -> Config:
    """A copy whose every place is named. Its identity is the same."""
    return dataclasses.replace(config, train=dataclasses.replace(config.train, kernels=dict(kernels)))


def open_places(config: Config) -> list[str]:
    """Where a measurement may choose: not named, and with more than the reference to choose from."""
    own = named(config.train)
    return [place for place in PLACES if place not in own and place != "loss" and not unused(config, place)]


def words(kernels: Any) -> str:
    """`linear=onednn, attention=torch, ...`; empty for what names none."""
    return ", ".join(f"{place}={name}" for place, name in kernels.items()) if isinstance(kernels, Mapping) else ""
