"""A forward pass of a skeleton, on the meta device: shapes without values. A part that needs values stops it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from gptlab.model import Model

_OPERATOR = re.compile(r"(?:aten[:.]+|torch\.)(\w+)")


class UncountableError(Exception):
    """A part that cannot be computed without values; the words say which, and why."""


def dry_run(model: Model, batch_size: int, context: int) -> Tensor:
    """What the skeleton `model` puts out for a batch. UncountableError, naming the part, where it cannot be had."""
    with _said_by_part(model):
        return model(model.example_input(batch_size, context))


@contextmanager
def _said_by_part(model: nn.Module) -> Iterator[None]:
    inside: list[str] = []  # the modules that are being computed, from the outermost on
    handles = []
    for path, module in model.named_modules():
        name = f"{path or 'model'} ({type(module).__name__})"
        handles.append(module.register_forward_pre_hook(lambda *_, name=name: inside.append(name)))
        handles.append(module.register_forward_hook(lambda *_: (inside.pop(), None)[1]))
    try:
        yield
    except Exception as error:  # a user's part may raise anything
        raise UncountableError(f"{inside[-1] if inside else 'the model'} {_why(error)}") from error
    finally:
        for handle in handles:
            handle.remove()


def _why(error: Exception) -> str:
    operator = _OPERATOR.search(str(error))
    if isinstance(error, NotImplementedError) and operator:
        return f"uses {operator[1]}, whose result depends on values"
    first = str(error).strip().partition("\n")[0]
    return f"needs values: {type(error).__name__}: {first[:160]}"
