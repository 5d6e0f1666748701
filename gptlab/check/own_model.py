"""A model of the reader's own, held against gptlab's: the same names, the same first weights, the same numbers inside?

Both compute the same ids with the same weights, those of the reader's model, and the first module whose output differs
is where the two part. So a mistake in a forward pass is told from weights that were put in the wrong place.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gptlab import model as models
from gptlab.config import Config
from gptlab.errors import ConfigError, GptlabError, unknown

BOOK_KEYS = ("vocab_size", "context_length", "emb_dim", "n_heads", "n_layers", "drop_rate", "qkv_bias")
ROUNDING = 1e-4  # of the largest number of a tensor: two right ways to compute one thing differ by less


@dataclass(frozen=True)
class Difference:
    """Where two models part first. `by`: the largest absolute difference, None where shapes or names differ."""

    what: str
    where: str
    by: float | None
    said: str


def own_model(name: str, config: Config) -> nn.Module:
    """What `MODULE:NAME` stands for: a class or function (of the book's dictionary, or of nothing), or a model.

    It is made under the seed of `config`, as the book makes its own.
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        said = f"diff-model: {name!r} is not MODULE:NAME, as in my_module:MyGPT."
        raise ConfigError(said, code="own-model-name", value=name)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        said = f"diff-model: no module named {error.name!r}. It is looked for here and on PYTHONPATH."
        raise ConfigError(said, code="own-model-module", value=error.name) from error
    if not hasattr(found, attribute):
        names = [one for one, value in vars(found).items() if callable(value) or isinstance(value, nn.Module)]
        raise unknown(f"diff-model: {module}", attribute, names)
    maker: Any = getattr(found, attribute)
    if isinstance(maker, nn.Module):
        return maker.eval()
    if not callable(maker):
        raise ConfigError(f"diff-model: {name} is {type(maker).__name__}, no model.", code="own-model-kind")
    wanted = [p for p in inspect.signature(maker).parameters.values() if p.default is p.empty and p.kind < 2]
    try:
        with torch.random.fork_rng():
            torch.manual_seed(config.seed)
            made = maker({key: getattr(config.model, key) for key in BOOK_KEYS}) if wanted else maker()
    except Exception as error:  # the user's own code
        said = f"diff-model: {name} raised {type(error).__name__}: {error}"
        raise GptlabError(said, code="own-model-raised", value=name) from error
    if not isinstance(made, nn.Module):
        raise ConfigError(f"diff-model: {name} gives {type(made).__name__}, no torch module.", code="own-model-result")
    return made.eval()


def differences(config: Config, theirs: nn.Module) -> list[Difference]:
    """What differs, in the order in which it has to be mended: names and shapes, first weights, numbers inside."""
    ours = models.build(config)
    own, other = dict(ours.named_parameters()), dict(theirs.named_parameters())
    found = list(_names(own, other))
    if found:
        return found
    unlike = next((name for name in own if not torch.equal(own[name], other[name])), None)
    if unlike:
        said = f"the first that differs from what is drawn under seed={config.seed}"
        found.append(Difference("weights", unlike, _gap(own[unlike], other[unlike]), said))
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(other[name])
    first = _first_output(config, ours, theirs)
    return [*found, *([first] if first else [])]


def _names(own: dict[str, nn.Parameter], other: dict[str, nn.Parameter]) -> Iterator[Difference]:
    for name in own:
        if name not in other:
            yield Difference("names", name, None, "your model has no such parameter")
        elif own[name].shape != other[name].shape:
            said = f"{tuple(other[name].shape)} in your model, {tuple(own[name].shape)} here"
            yield Difference("shapes", name, None, said)
    for name in other:
        if name not in own:
            yield Difference("names", name, None, "gptlab's model has no such parameter")


def _first_output(config: Config, ours: nn.Module, theirs: nn.Module) -> Difference | None:
    """The first module of both whose output differs with equal weights; of nested ones the innermost comes first."""
    generator = torch.Generator().manual_seed(config.seed)
    tokens = min(16, config.model.context_length)
    ids = torch.randint(config.model.vocab_size, (2, tokens), generator=generator)
    mine, yours = _outputs(ours, ids), _outputs(theirs, ids)
    for name, tensor in mine.items():
        if name not in yours:
            continue
        if tensor.shape != yours[name].shape:
            said = f"{tuple(yours[name].shape)} in your model, {tuple(tensor.shape)} here"
            return Difference("output", name, None, said)
        by = _gap(tensor, yours[name])
        if not by <= ROUNDING * max(1.0, float(tensor.abs().max())):
            return Difference("output", name, by, "the first output that differs, with equal weights")
    return None


def _outputs(model: nn.Module, ids: Tensor) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    hooks = [m.register_forward_hook(partial(_keep, found, name or "the logits")) for name, m in model.named_modules()]
    try:
        with torch.no_grad():
            model(ids)
    except Exception as error:  # the user's own code
        said = f"diff-model: the model raised {type(error).__name__}: {error}"
        raise GptlabError(said, code="own-model-fails") from error
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _keep(found: dict[str, Tensor], name: str, module: nn.Module, inputs: Any, output: Any) -> None:
    if isinstance(output, tuple) and output:
        output = output[0]
    if isinstance(output, Tensor):
        found.setdefault(name, output.clone())


def _gap(one: Tensor, other: Tensor) -> float:
    return float((one.detach().double() - other.detach().double()).abs().max()) if one.numel() else 0.0
