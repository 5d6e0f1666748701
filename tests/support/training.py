"""Small trainings for the tests."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from torch import nn

from gptlab import compose
from gptlab.config import Config
from gptlab.probes import Subject
from gptlab.training import train
from gptlab.training.history import read
from gptlab.training.loop import Trained

TOY = {
    "model": "toy_lesson", "data": "sentences", "probes": "counting", "train.batch_size": "4",
}  # fmt: skip


def toy(*overrides: str, steps: int = 12) -> Config:
    """A toy that trains in a moment. A later value of a key replaces an earlier one."""
    often = {"evaluation.every": str(min(4, steps)), "train.log_every": str(min(3, steps))}
    values = {**TOY, **often, "train.budget": str(steps), **dict(text.split("=", 1) for text in overrides)}
    return compose([f"{key}={value}" for key, value in values.items()])


def trained(config: Config, folder: Path, resume: bool = False) -> tuple[Trained, nn.Module]:
    subject = Subject(config)
    return train(subject, folder, resume=resume), subject.model


def weights_hash(model: nn.Module) -> str:
    """SHA-256 over the bytes of all weights."""
    digest = sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def numbers(folder: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without the clock."""
    return [{key: value for key, value in line.items() if key != "seconds"} for line in read(folder)]
