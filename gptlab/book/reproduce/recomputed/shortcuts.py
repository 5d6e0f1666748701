"""Shortcuts: the five-layer network with and without them, at seed 123 and over 500 seeds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from gptlab.book.reproduce.lab import FIVE_LAYERS, WITHOUT_SHORTCUTS, Lab
from gptlab.book.reproduce.measured_by import check, checks
from gptlab.book.reproduce.verdicts import Found
from gptlab.model import build
from gptlab.probes import Subject
from gptlab.probes.gradients import loss_of
from gptlab.probes.spectrum import rows as path_rows
from gptlab.probes.spectrum import spectrum

LAYERS = range(5)
EQUAL_WIDTH = ("model.layer_sizes=[3,3,3,3,3,3]", "data.targets=[[0.0,0.0,0.0]]")


@checks({f"SC-wo{i}": i for i in LAYERS})
def without(lab: Lab, layer: int) -> float:
    return lab.gradients(WITHOUT_SHORTCUTS)[layer]


@checks({f"SC-wi{i}": i for i in LAYERS})
def with_shortcuts(lab: Lab, layer: int) -> float:
    return lab.gradients()[layer]


def lifts(lab: Lab) -> list[float]:
    return [a / b for a, b in zip(lab.gradients(), lab.gradients(WITHOUT_SHORTCUTS), strict=True)]


@checks({f"SC-lift{i}": i for i in LAYERS})
def lift(lab: Lab, layer: int) -> float:
    return lifts(lab)[layer]


@check("SC-decades")
def decades(lab: Lab) -> tuple[float, ...]:
    return tuple(math.log10(lift) for lift in lifts(lab))


@check("SC-floor")
def floor(lab: Lab) -> tuple[float, float]:
    return min(lab.gradients(WITHOUT_SHORTCUTS)), min(lab.gradients())


@check("SC-25")
def last_over_first(lab: Lab) -> float:
    found = lab.gradients(WITHOUT_SHORTCUTS)
    return found[-1] / found[0]


@check("SC-mono")
def shrinking(lab: Lab) -> Found:
    found = lab.gradients(WITHOUT_SHORTCUTS)
    seeds = many_seeds(lab, WITHOUT_SHORTCUTS)
    share = (seeds.diff(dim=1) > 0).all(dim=1).double().mean().item()
    return Found(
        "monotone" if found == sorted(found) else "not monotone",
        f"layer 0 has {found[0]:.3g} and layer 1 {found[1]:.3g}; of {len(seeds)} seeds, {share:.0%} are monotone",
    )


@check("SC-notclean")
def first_two(lab: Lab) -> str:
    first, second, *_ = lab.gradients(WITHOUT_SHORTCUTS)
    return "g0 > g1" if first > second else "g0 <= g1"


@check("SC-l4max")
def largest(lab: Lab) -> Found:
    found = tuple(_argmax(lab.gradients(*overrides)) for overrides in ((WITHOUT_SHORTCUTS,), ()))
    shares = [_last_largest(many_seeds(lab, *overrides)) for overrides in ((WITHOUT_SHORTCUTS,), ())]
    return Found(
        found, f"over {lab.seeds} seeds it is layer 4 in {shares[0]:.1%} without, {shares[1]:.1%} with shortcuts"
    )


@check("SC-l4why")
def why_the_last(lab: Lab) -> Found:
    """All layers equally wide, so that the last one can have a shortcut too; then take away only that one."""
    has, lacks = (_last_largest(many_seeds(lab, *EQUAL_WIDTH, last=last)) for last in (True, False))
    plain = _last_largest(many_seeds(lab, *EQUAL_WIDTH, WITHOUT_SHORTCUTS))
    return Found(
        "missing shortcut" if lacks > 2 * has else "position",
        f"at equal width, layer 4 is largest in {lacks:.0%} of {lab.seeds} seeds without a shortcut of its own and in "
        f"{has:.0%} with one; position explains the plain net alone ({plain:.0%})",
    )


@check("SC-meaning")
def two_factors(lab: Lab) -> Found:
    """The lift of layer 0: dL/dy = 2y is larger with shortcuts, and so is dy/dW. Then what went the bypass alone."""
    errors = []
    for overrides in ((), (WITHOUT_SHORTCUTS,)):
        subject = Subject(lab.config(FIVE_LAYERS, *overrides))
        with torch.no_grad():
            errors.append(subject.model(subject.source.batch(1, 1).inputs).abs().mean().item())
    error, whole = errors[0] / errors[1], lifts(lab)[0]
    subject = Subject(lab.config(FIVE_LAYERS))
    rows = path_rows(spectrum(subject.model, loss_of, subject.source.batch(1, 1)))
    bypass = next(r["value"] for r in rows if (r["layer"], r["part"], r["metric"]) == (0, "weight", "path_share/0"))
    return Found(
        "different" if bypass > 0.5 else "the same",
        f"layer 0's lift of {whole:,.0f} is {error:.2f} (larger output error) times {whole / error:.1f} (Jacobian); "
        f"{bypass:.0%} of its gradient came through no branch at all",
    )


@check("SC-jac")
def jacobian(lab: Lab) -> float:
    """Of one transformer sub-layer with its shortcut, against the identity plus that of its branch, in float64."""
    block = lab.build("model=tiny").trf_blocks[0].double()

    def branch(x: Tensor) -> Tensor:
        return block.ff(block.norm2(x))

    def layer(x: Tensor) -> Tensor:
        return block.shortcut_ff(x, branch(x))

    x = lab.noise(block.norm2.dim)
    whole, inner = torch.autograd.functional.jacobian(layer, x), torch.autograd.functional.jacobian(branch, x)
    return (whole - torch.eye(len(x), dtype=x.dtype) - inner).abs().max().item()


@check("SC-noguarantee")
def no_guarantee(lab: Lab) -> Found:
    with_them, without_them = many_seeds(lab), many_seeds(lab, WITHOUT_SHORTCUTS)
    worse = (with_them.amin(1) < without_them.amin(1)).double().mean().item()
    return Found(
        "exists" if worse else "none", f"in {worse:.1%} of {lab.seeds} seeds the floor is lower with shortcuts"
    )


@check("SC-shape")
def how_many(lab: Lab) -> int:
    kind = type(lab.part("shortcut", "add"))
    return sum(isinstance(module, kind) for module in lab.five_layers().shortcuts)


@check("SC-notlearn")
def learning(lab: Lab) -> Found:
    """One step of Adam on the net without shortcuts: how far each layer's weights move, on average."""
    subject = Subject(lab.config(FIVE_LAYERS, WITHOUT_SHORTCUTS))
    model: Any = subject.model
    before = [layer[0].weight.detach().clone() for layer in model.layers]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_of(model, subject.source.batch(1, 1)).backward()
    gradients = [layer[0].weight.grad.abs().mean().item() for layer in model.layers]
    optimizer.step()
    moved = [
        (layer[0].weight - old)[layer[0].weight.grad != 0].abs().mean().item()
        for layer, old in zip(model.layers, before, strict=True)
    ]
    small = _argmax([-g for g in gradients])
    return Found(
        "learning" if moved[small] > 0.5 * max(moved) else "not learning",
        f"layer {small} has the smallest gradient, {gradients[small]:.2g}, and a step of Adam moves its weights by "
        f"{moved[small]:.2g}, as far as those of any layer ({max(moved):.2g})",
    )


@check("SC-samew")
def same_weights(lab: Lab) -> str:
    one, other = lab.five_layers().state_dict(), lab.five_layers(WITHOUT_SHORTCUTS).state_dict()
    same = one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    return "identical" if same else "different"


def many_seeds(lab: Lab, *overrides: str, last: bool | None = None) -> Tensor:
    """(seeds, layers): mean |dL/dW|, seeds 0, 1, 2, ... All seeds' weights are stacked and go through one pass.

    `last`: False takes away the shortcut of the last layer alone.
    """
    return lab.once(("seeds", overrides, last), lambda: _many_seeds(lab, overrides, last))


def _many_seeds(lab: Lab, overrides: tuple[str, ...], last: bool | None) -> Tensor:
    config = lab.config(FIVE_LAYERS, *overrides)
    first = lab.seed - 123
    models: list[Any] = [build(replace(config, seed=seed)) for seed in range(first, first + lab.seeds)]
    model, batch = models[0], Subject(config).source.batch(1, 1)
    if last is False:
        model.shortcuts[-1] = lab.part("shortcut", "none")
    stacked = {
        name: torch.stack([dict(m.named_parameters())[name].detach() for m in models])
        for name, _ in model.named_parameters()
    }

    def loss(weights: dict[str, Tensor]) -> Any:
        return (functional_call(model, weights, batch.inputs) - batch.targets).square().mean()

    found = vmap(grad(loss))(stacked)
    return torch.stack([found[f"layers.{i}.0.weight"].abs().mean(dim=(1, 2)) for i in range(len(model.layers))], dim=1)


def _argmax(values: list[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


def _last_largest(gradients: Tensor) -> float:
    return (gradients.argmax(1) == gradients.shape[1] - 1).double().mean().item()
