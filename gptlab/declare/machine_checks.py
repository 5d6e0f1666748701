"""What this machine has: a tracker that is installed, a device, bf16, Muon. Free of torch unless one is asked for."""

from __future__ import annotations

from importlib.util import find_spec

from gptlab.config import Config
from gptlab.errors import ConfigError, wrong_value


def check_machine(config: Config) -> None:
    """ConfigError for what `config` asks of the machine and it lacks; what a cluster's nodes have is not known here."""
    train = config.train
    if config.tracker == "tensorboard" and find_spec("tensorboard") is None:
        raise ConfigError(
            "tracker=tensorboard: it is not installed. pip install 'gptlab[tensorboard]'.",
            code="tracker-not-installed",
            key="tracker",
            value="tensorboard",
        )
    here = config.launcher == "local"
    if train.device not in ("auto", "cpu"):
        _check_device(train.device, here)
    if train.precision == "bf16" and here:
        _check_bf16(train.device)
    if train.optimizer == "muon":
        import torch

        if not hasattr(torch.optim, "Muon"):
            raise ConfigError(
                f"train.optimizer=muon: needs torch 2.9 or newer; this is {torch.__version__}.",
                code="muon-needs-torch",
                key="train.optimizer",
                value="muon",
            )


def _check_device(name: str, here: bool) -> None:
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(
            f"train.device={name!r}: is no device. Allowed: auto, cpu, cuda, cuda:<number>.",
            code="device-unknown",
            key="train.device",
            value=name,
        ) from error
    if device.type not in ("cpu", "cuda"):
        raise wrong_value(
            "train.device", name, "not supported. Allowed: auto, cpu, cuda, cuda:<number>.", code="device-not-supported"
        )
    if here and device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise wrong_value(
            "train.device", name, f"this machine has {torch.cuda.device_count()} CUDA devices.", code="device-not-there"
        )


def _check_bf16(device: str) -> None:
    import torch

    if device.startswith("cuda") or device == "auto" and torch.cuda.is_available():
        if not torch.cuda.is_bf16_supported():
            raise ConfigError(
                "train.precision=bf16: this GPU does not have it. Use train.precision=fp32.",
                code="bf16-not-on-gpu",
                key="train.precision",
                value="bf16",
            )
    elif not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        raise ConfigError(
            "train.precision=bf16: this processor does not have it. Use train.precision=fp32.",
            code="bf16-not-on-cpu",
            key="train.precision",
            value="bf16",
        )
