"""What each parameter is for, so that no optimizer has to judge it by its shape.

    matrix     maps vectors to vectors: what Muon is for
    embedding  a table that is looked up, tied to the head or not
    head       turns features into logits
    gain       multiplies what passes: the scale of a norm, of a branch, of an attention head
    vector     all else that is no matrix: biases

A module says it by a method, names relative to itself:

    def parameter_roles(self) -> dict[str, str]:
        return {"head_scale": "gain"}

What a module leaves unsaid follows from its type (`nn.Linear`, `nn.Embedding`), and last from the number of axes that
are longer than 1: with two or more it is taken for a matrix, so a gain of such a shape has to say so.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from gptlab.errors import ConfigError, unknown

ROLES = ("matrix", "embedding", "head", "gain", "vector")


@runtime_checkable
class SaysRoles(Protocol):
    """A module that says what parameters of its own are for: name, relative to itself -> role."""

    def parameter_roles(self) -> dict[str, str]: ...


def parameter_roles(model: nn.Module) -> dict[str, str]:
    """Name -> role of every parameter, under the first of its names. ConfigError for a role that does not exist."""
    said: dict[int, str] = {}
    for module in model.modules():
        for name, role in _declared(module).items():
            parameter = _parameter(module, name)
            if role not in ROLES:
                raise unknown(f"{type(module).__name__}.parameter_roles: {name}", role, ROLES)
            if parameter is not None:
                said[id(parameter)] = role
    for module in model.modules():  # a table that is a head too: looked up first of all
        if isinstance(module, nn.Embedding):
            said[id(module.weight)] = "embedding"
    typed = {id(m.weight): "matrix" for m in model.modules() if isinstance(m, nn.Linear)}
    return {
        name: said.get(id(parameter)) or typed.get(id(parameter)) or _by_shape(parameter)
        for name, parameter in model.named_parameters()
    }


def _declared(module: nn.Module) -> dict[str, str]:
    return module.parameter_roles() if isinstance(module, SaysRoles) else {}


def _parameter(module: nn.Module, name: str) -> Tensor | None:
    """None for one that the module does without, such as the shift of a norm that has none."""
    try:
        return module.get_parameter(name)
    except AttributeError as error:
        path, _, last = name.rpartition(".")
        if name and getattr(module.get_submodule(path), last, ...) is None:
            return None
        raise ConfigError(
            f"{type(module).__name__}.parameter_roles: it has no parameter {name!r}.",
            code="role-of-no-parameter",
            name=name,
        ) from error


def _by_shape(parameter: Tensor) -> str:
    return "matrix" if sum(size > 1 for size in parameter.shape) > 1 else "vector"
