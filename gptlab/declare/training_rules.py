"""What a training config may say, before anything is built. Free of torch unless bf16 or a device is asked for."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from importlib.util import find_spec

from gptlab import registry
from gptlab.config import Config, ModelConfig, TrainConfig
from gptlab.errors import ConfigError, unknown

_CHOICES = ("optimizer", "schedule")
# Keys that only optimizers and schedules read, each those that name it in their signature.
_LEFT_TO_PARTS = frozenset({"beta1", "beta2", "eps", "momentum", "final_rate", "decay_share"})


def settle_training(train: TrainConfig, model: ModelConfig) -> TrainConfig:
    """A copy with the context written out. Without a budget no other key means anything: they get their defaults."""
    if train.budget is None:
        return TrainConfig()
    options = {}
    for part in parts(train):
        given = train.options.get(part.kind)
        if given is not None and (kept := part.settled_options(given)):
            options[part.kind] = kept
    return dataclasses.replace(train, context=train.context or model.context_length, options=options)


def parts(train: TrainConfig) -> tuple[registry.Component, registry.Component]:
    """The optimizer and the schedule that are chosen. ConfigError for a name that is not registered, or its options."""
    for kind in train.options:
        if kind not in _CHOICES:
            raise unknown("train.options", kind, _CHOICES)
    return registry.get("optimizer", train.optimizer), registry.get("schedule", train.schedule)


def check_training(config: Config, changed: Collection[str] = ()) -> None:
    """ConfigError for a training that cannot be, or a key that it would ignore. `changed`: keys that the user set."""
    train = config.train
    if train.budget is None:
        ignored = {"train", "tracker", "data.split", "data.validation_fraction"}
        _refuse_ignored(changed, ignored, "train.budget is null, so nothing is trained")
        return
    if config.model.architecture != "gpt":
        raise ConfigError(f"train.budget: architecture={config.model.architecture} cannot be trained, only gpt can.")
    _check_sizes(train, config.model)
    _check_rates(train)
    _check_read(config, changed)
    steps = run_length(train)
    if steps is not None:
        check_warmup(train, steps, changed)
        _check_decay(train, steps, changed)
    _check_machine(config)


def run_length(train: TrainConfig) -> int | None:
    """Steps of the run, as far as the config alone tells: not of a budget in seconds or FLOPs."""
    assert train.budget is not None
    if train.budget_unit == "steps":
        return int(train.budget)
    if train.budget_unit == "tokens" and train.context:
        return max(1, math.ceil(train.budget / (train.batch_size * train.context)))
    return None


def check_warmup(train: TrainConfig, steps: int, changed: Collection[str] = ()) -> None:
    """ConfigError for a warm-up that the run is too short for. A preset's schedule may be meant for a longer run."""
    if train.warmup > steps:
        raise ConfigError(f"train.warmup={train.warmup}: longer than the run, {length_words(train, steps)}.")
    asked = "train.warmup" in changed or "train.schedule" in changed
    if asked and train.schedule != "constant" and train.warmup and train.warmup >= steps:
        raise ConfigError(
            f"train.warmup={train.warmup}: is all of the run, {length_words(train, steps)}, so train.schedule="
            f"{train.schedule} would never begin."
        )


def _check_decay(train: TrainConfig, steps: int, changed: Collection[str]) -> None:
    falling = max(1, round(train.decay_share * steps))
    if train.schedule == "wsd" and "train.decay_share" in changed and falling + train.warmup > steps:
        raise ConfigError(
            f"train.decay_share={train.decay_share:g}: the last {falling} of {steps} steps begin within the warm-up, "
            f"train.warmup={train.warmup}."
        )


def length_words(train: TrainConfig, steps: int) -> str:
    """How long the run is, as its config says it."""
    words = f"train.budget={train.budget:g} {train.budget_unit}"
    return words if train.budget_unit == "steps" else f"{steps} steps ({words})"


def _refuse_ignored(changed: Collection[str], keys: Collection[str], why: str) -> None:
    for key in sorted(changed):
        if key in keys or key.split(".")[0] in keys:
            raise ConfigError(f"{key}: would be ignored, because {why}.")


def _check_sizes(train: TrainConfig, model: ModelConfig) -> None:
    assert train.budget is not None
    if train.context and train.context > model.context_length:
        raise ConfigError(f"train.context={train.context}: longer than model.context_length={model.context_length}.")
    if train.batch_size % train.accumulate:
        raise ConfigError(
            f"train.accumulate={train.accumulate}: train.batch_size={train.batch_size} is not divisible by it."
        )
    if train.budget_unit == "steps" and train.budget != int(train.budget):
        raise ConfigError(f"train.budget={train.budget}: steps are whole numbers.")


def _check_rates(train: TrainConfig) -> None:
    for key in ("beta1", "beta2"):
        if getattr(train, key) >= 1:
            raise ConfigError(f"train.{key}={getattr(train, key)}: must be below 1.")
    if train.budget_unit == "seconds" and "total" in registry.get("schedule", train.schedule).inputs:
        raise ConfigError(
            f"train.schedule={train.schedule}: with a budget in seconds nobody knows how many steps there will be. "
            "Allowed: constant (with or without warm-up)."
        )


def _check_read(config: Config, changed: Collection[str]) -> None:
    train = config.train
    chosen = parts(train)
    for part in chosen:
        of_kind = {key for other in registry.components(part.kind).values() for key in other.inputs}
        unread = of_kind & _LEFT_TO_PARTS - {key for other in chosen for key in other.inputs}
        _refuse_ignored(changed, {f"train.{key}" for key in unread}, f"train.{part.kind}={part.name} does not read it")
    if not train.weight_decay:
        _refuse_ignored(changed, {"train.decay_embeddings", "train.decay_vectors"}, "train.weight_decay is 0")
    if train.probe_every and not _any_probe_looks(config):
        _refuse_ignored(changed, {"train.probe_every"}, "no probe is on that could look")


def _any_probe_looks(config: Config) -> bool:
    """Whether a probe is on whose findings change with training."""
    on = [name for name, options in vars(config.probes).items() if options is not None]
    return any(not registry.get("probe", name).facts["static"] for name in on)


def _check_machine(config: Config) -> None:
    train = config.train
    if config.tracker == "tensorboard" and find_spec("tensorboard") is None:
        raise ConfigError("tracker=tensorboard: it is not installed. pip install 'gptlab[tensorboard]'.")
    if train.device not in ("auto", "cpu"):
        _check_device(train.device)
    if train.precision == "bf16":
        _check_bf16(train.device)
    if train.optimizer == "muon":
        import torch

        if not hasattr(torch.optim, "Muon"):
            raise ConfigError(f"train.optimizer=muon: needs torch 2.9 or newer; this is {torch.__version__}.")


def _check_device(name: str) -> None:
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"train.device={name!r}: is no device. Allowed: auto, cpu, cuda, cuda:<number>.") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"train.device={name}: not supported. Allowed: auto, cpu, cuda, cuda:<number>.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"train.device={name}: this machine has {torch.cuda.device_count()} CUDA devices.")


def _check_bf16(device: str) -> None:
    import torch

    if device.startswith("cuda") or device == "auto" and torch.cuda.is_available():
        if not torch.cuda.is_bf16_supported():
            raise ConfigError("train.precision=bf16: this GPU does not have it. Use train.precision=fp32.")
    elif not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        raise ConfigError("train.precision=bf16: this processor does not have it. Use train.precision=fp32.")
