"""Weights from a file into a model: what fits, what does not on either side, and the copying itself.

The file is held against the model that it implies first: there every name has to find its place. Then what it gives
goes into the model that was declared, which may be another one: what fits is taken, and all else is named.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gptlab.config import ModelConfig
from gptlab.errors import GptlabError

if TYPE_CHECKING:
    from gptlab.weights.found import Found

TABLE, HEAD, POSITIONS = "tok_emb.weight", "out_head.weight", "pos_emb.weight"
_BLOCK = re.compile(r"((?:[A-Za-z_]+\.)*(?:trf_blocks|layers|h)\.)(\d+)(?=\.)")
AT_ONCE = 2**28  # numbers that are read before they are copied: 1 GiB
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Fit:
    """What of a file goes into a model, by our names. `missing` weights are drawn as if there were no file."""

    found: Found
    taken: tuple[str, ...]
    cut: tuple[str, ...] = ()  # the first rows of a longer table of positions
    copied: tuple[str, ...] = ()  # a head of its own, from the table that the file shares with it
    left_over: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether nothing is drawn: every seed then gives this very model."""
        return not self.missing

    def sentences(self) -> list[str]:
        """What a reader of the run must know, for there is no silent partial load."""
        found = []
        if self.missing:
            found.append(f"weights: not in the file, and drawn anew: {_listed(self.missing)}")
        if self.left_over:
            found.append(f"weights: in the file, and without a place here: {_listed(self.left_over)}")
        if self.cut:
            found.append(f"weights: only the first rows are used of {_listed(self.cut)}")
        if self.copied:
            found.append(f"weights: a copy of the shared table is {_listed(self.copied)}")
        return found


def other_heads(found: Found, n_heads: int) -> list[str]:
    """That heads are cut otherwise than the file says, in a sentence: every shape fits, so nothing else would tell."""
    said = found.model.get("n_heads")
    if said in (None, n_heads):
        return []
    return [f"weights: the file says n_heads={said}, this model has {n_heads}: the same numbers, another function"]


def shapes_of(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every weight and stored buffer, once: a tied head is its table."""
    return {name: tuple(tensor.shape) for name, tensor in state_of(model).items()}


def fit_whole(found: Found, shapes: Shapes) -> Fit:
    """The file in the model that it implies, with these `shapes`. GptlabError, naming both sides, unless all fits."""
    fit = fit_into(found, shapes)
    strange = [*found.strange, *fit.left_over]
    if strange or fit.missing:
        parts = [f"it lacks {_listed(fit.missing)}"] if fit.missing else []
        parts += [f"it has {_listed(strange)}, for which there is no place"] if strange else []
        raise GptlabError(
            f"{found.path}: is not the {found.family} that it says it is: {'; '.join(parts)}.",
            code="weights-incomplete",
            path=found.path,
            missing=list(fit.missing),
            left_over=strange,
        )
    return fit


def fit_into(found: Found, shapes: Shapes) -> Fit:
    """The file in any model with these `shapes`."""
    offered = found.offered()
    taken = [name for name, shape in shapes.items() if offered.get(name) == shape]
    table, wanted = offered.get(POSITIONS), shapes.get(POSITIONS)
    cut = []
    if table and wanted and table != wanted and table[1:] == wanted[1:] and table[0] > wanted[0]:
        cut = [POSITIONS]
    shared = HEAD in shapes and HEAD not in offered and offered.get(TABLE) == shapes[HEAD]
    copied = [HEAD] if shared else []
    used = {*taken, *cut}
    return Fit(
        found,
        tuple(taken),
        tuple(cut),
        tuple(copied),
        left_over=tuple(_beside(name, offered[name], shapes) for name in offered if name not in used),
        missing=tuple(_beside(name, shapes[name], offered) for name in shapes if name not in {*used, *copied}),
    )


def _beside(name: str, shape: tuple[int, ...], others: Shapes) -> str:
    """The name, with both shapes where the other side has it too."""
    return f"{name} {list(shape)} against {list(others[name])}" if name in others else name


@torch.no_grad()
def put(model: nn.Module, fit: Fit) -> None:
    """Copy what fits into the model. GptlabError where a file's head is said to be its table, and is not."""
    own = state_of(model)
    for tensors in _parts(fit):
        for name, tensor in tensors.items():
            target = own[name]
            target.copy_(tensor[: len(target)] if name in fit.cut else tensor)
    if fit.copied:
        own[HEAD].copy_(own[TABLE] if TABLE in fit.taken else fit.found.tensors([TABLE])[TABLE])
    _check_shared(fit)


def _parts(fit: Fit) -> Iterator[dict[str, Tensor]]:
    """What fits, some tensors at a time, so that a large file is never in memory beside the model."""
    offered = fit.found.offered()
    waiting: list[str] = []
    numbers = 0
    for name in (*fit.taken, *fit.cut):
        waiting.append(name)
        numbers += math.prod(offered[name])
        if numbers >= AT_ONCE:
            yield fit.found.tensors(waiting)
            waiting, numbers = [], 0
    yield fit.found.tensors(waiting)


def _check_shared(fit: Fit) -> None:
    from gptlab.weights.hugging_face import TIED

    heads = [name for name, why in fit.found.dropped.items() if why == TIED]
    for name in heads:
        head = fit.found.read([name])[name]
        if not torch.equal(head, fit.found.tensors([TABLE])[TABLE]):
            raise GptlabError(
                f"{fit.found.path}: {name} is another tensor than the table of tokens, and the file says that the two "
                "are one (tie_word_embeddings).",
                code="weights-head-not-table",
                path=fit.found.path,
                name=name,
            )


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Name -> tensor of every weight and stored buffer, once."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor.detach()))
    return dict(found.values())


def opened(model: ModelConfig) -> Found:
    """The file that `model.weights` names. GptlabError where it no longer has the weights that it had."""
    from gptlab.weights.opening import open_weights, sha256

    assert model.weights is not None
    found = open_weights(model.weights)
    if model.weights_sha256 and (now := sha256(found)) != model.weights_sha256:
        raise GptlabError(
            f"model.weights={model.weights}: has other weights than when this was declared: their SHA-256 begins with "
            f"{now[:12]}, not {model.weights_sha256[:12]}.",
            code="weights-changed",
            key="model.weights",
            value=model.weights,
            expected=model.weights_sha256,
            sha256=now,
        )
    return found


def _listed(names: Sequence[str]) -> str:
    """Every name, those of several blocks as one: trf_blocks.0-2.norm1.shift."""
    blocks: dict[str, list[int]] = {}
    for name in names:
        match = _BLOCK.match(name)
        kind = f"{match[1]}{{}}{name[match.end() :]}" if match else name.replace("{", "{{").replace("}", "}}")
        blocks.setdefault(kind, []).extend([int(match[2])] if match else [])
    return ", ".join(kind.format(_spans(layers)) for kind, layers in blocks.items())


def _spans(numbers: Sequence[int]) -> str:
    """0, 1, 2, 5 as 0-2,5."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in spans)
