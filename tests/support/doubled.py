"""transformers in float64 throughout: its norms, rotations and softmaxes cast to float32, whatever comes in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import torch


class _Doubled(ModuleType):
    """torch, in which float32 is float64."""

    float32 = float = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@contextmanager
def doubled() -> Iterator[None]:
    """Within this context, casts to float32 inside transformers, and every `Tensor.float()`, give float64.

    Models made and called here compute in float64 from end to end. It reaches the modules that are imported by then;
    transformers imports those of a model when the model is first asked for.
    """
    stand_in, before = _Doubled("torch"), torch.get_default_dtype()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        for name, module in list(sys.modules.items()):
            if name.startswith("transformers.") and vars(module).get("torch") is torch:
                patch.setattr(module, "torch", stand_in)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)
