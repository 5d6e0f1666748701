"""From a config to a model with its initial weights.

`rng: paired` replays the book's own initialisation: it walks the parameters of the reference (the book's choices at
the given sizes) in the book's construction order with one generator. A parameter that the model shares with the
reference takes the very draw; one that differs in scale, family or shape takes the same underlying noise as far as it
reaches; one that the reference lacks draws from a stream of its own, keyed by seed and name. So two variants of equal
size differ in what was declared, never by a shifted random stream.

`rng: global` draws the model's own parameters from one stream in construction order, as a plain script does.

Neither touches the global random state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from gptlab import streams
from gptlab.config import Config, ModelConfig
from gptlab.model.deep_mlp import DeepMLP
from gptlab.model.gpt import GPT
from gptlab.model.init import Draw, ScalesRates, TorchInit
from gptlab.model.layers import HasAfterStep, Linear, uninitialised
from gptlab.model.slots import Parts
from gptlab.weights.loading import Fit, fit_into, fit_whole, opened, put, shapes_of

Init = Callable[[nn.Module, str], Draw | None]
Model = GPT | DeepMLP
ARCHITECTURES: dict[str, type[GPT] | type[DeepMLP]] = {"gpt": GPT, "deep_mlp": DeepMLP}


def build(config: Config) -> Model:
    """The model that `config` declares, with the initial weights of `config.seed`, in float32 on the CPU, in eval mode.

    Token ids (B, T) in, logits (B, T, vocab_size) out. The same config gives the same bits. With `model.weights`, what
    the file gives takes the place of what would be drawn; GptlabError where it cannot be read, or has changed.
    """
    fit = weights_fit(config.model)
    with uninitialised(), streams.forked(config.seed, "construction"):
        model = ARCHITECTURES[config.model.architecture](config.model)
    if fit is None or not fit.whole:
        _draw(model, config)
    if fit is not None:
        put(model, fit)
    if isinstance(model, HasAfterStep):
        model.after_step()
    return model.eval()


def weights_fit(model: ModelConfig) -> Fit | None:
    """What of the file that `model.weights` names goes into this model; None where it names none. Reads headers alone.

    GptlabError for a file that does not hold the whole of the model that it implies.
    """
    if model.weights is None:
        return None
    found = opened(model)
    fit_whole(found, shapes_of(skeleton(implied_model(found.model))))
    return fit_into(found, shapes_of(skeleton(model)))


def implied_model(said: Mapping[str, Any]) -> ModelConfig:
    """The model that a file implies, for its names and shapes: how many heads there are leaves no trace in them."""
    return ModelConfig(**{"n_heads": 1, **{key: value for key, value in said.items() if value is not None}})


def _draw(model: nn.Module, config: Config) -> None:
    """Initial weights, as the config's init and its streams have them."""
    init = Parts(config.model)("init")
    with torch.no_grad():
        if config.rng == "paired":
            _draw_paired(model, init, config)
        else:
            generator = torch.Generator().manual_seed(config.seed)
            for _, parameter, draw in _draws(model, init):
                _fill(parameter, draw, generator)
        _reset_others(model, config.seed)


def skeleton(config: ModelConfig) -> Model:
    """The model on the meta device: every module, name and shape, but no memory and no values."""
    with uninitialised(), torch.device("meta"):
        return ARCHITECTURES[config.architecture](config)


def learning_rate_scales(model: nn.Module, config: ModelConfig) -> dict[str, float]:
    """Parameter name -> factor on its learning rate, as the init asks (muP does; the others leave it at 1)."""
    init = Parts(config)("init")
    scale = init.rate_scale if isinstance(init, ScalesRates) else lambda module, name: 1.0
    scales: dict[str, float] = {}
    for path, module in model.named_modules():
        for name, _ in module.named_parameters(recurse=False):
            scales[f"{path}.{name}" if path else name] = scale(module, name)
    return scales


def reference_config(config: ModelConfig) -> ModelConfig:
    """The book's choices at the sizes of `config`: what paired random numbers are shared with."""
    if config.architecture == "deep_mlp":
        return ModelConfig(architecture="deep_mlp", layer_sizes=config.layer_sizes)
    return ModelConfig(
        vocab_size=config.vocab_size,
        context_length=config.context_length,
        emb_dim=config.emb_dim,
        n_heads=1,  # the number of heads changes no shape; 1 divides every width
        n_layers=config.n_layers,
    )


def _draws(model: nn.Module, init: Init) -> Iterator[tuple[str, Tensor, Draw]]:
    """(name, parameter, distribution) in construction order, for each parameter that the init decides, once."""
    seen: set[int] = set()
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            draw = init(module, name)
            if draw is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                if isinstance(module, Linear):
                    draw = replace(draw, scale=draw.scale * module.gain)
                yield f"{path}.{name}" if path else name, parameter, draw


def _draw_paired(model: nn.Module, init: Init, config: Config) -> None:
    own = {name: (parameter, draw) for name, parameter, draw in _draws(model, init)}
    reference = list(_draws(skeleton(reference_config(config.model)), TorchInit(config.model.emb_dim)))
    shared = [i for i, (name, _, _) in enumerate(reference) if name in own and own[name][1].family != "constant"]
    size = sum(4 * like.numel() for _, like, _ in reference)
    stream = (config.seed, repr(reference_config(config.model)))
    # Beside a training the memory has better uses.
    replay = _Replay(config.seed, streams.kept(stream, size) if config.train.budget is None else None)
    scratch = torch.empty(0)
    for number, (name, like, reference_draw) in enumerate(reference[: shared[-1] + 1 if shared else 0]):
        parameter, draw = own.get(name, (None, reference_draw))
        if parameter is not None and parameter.shape == like.shape and draw.family != "constant":
            replay.fill(number, parameter, draw, reference_draw)
            del own[name]
            continue
        usable = parameter is not None and draw.family != "constant" and parameter.dim() == like.dim()
        if not usable and replay.knows(number + 1):
            continue
        if scratch.numel() < like.numel():
            scratch = torch.empty(like.numel())
        noise = scratch[: like.numel()].view(like.shape)
        replay.fill(number, noise, draw if usable else reference_draw, reference_draw)
        if usable and parameter is not None:
            _fill(parameter, draw, streams.generator(config.seed, "init", name))
            overlap = tuple(slice(0, min(a, b)) for a, b in zip(parameter.shape, noise.shape, strict=True))
            parameter[overlap] = noise[overlap]
            del own[name]
    for name, (parameter, draw) in own.items():
        _fill(parameter, draw, streams.generator(config.seed, "init", name))


class _Replay:
    """The reference's draws in its own order, by number from 0: from the generator, or as another build has kept them.

    Which of the two makes no difference to a value. Every draw is made, or known, before the next one.
    """

    def __init__(self, seed: int, kept: streams.Kept | None) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.kept = kept
        if kept is not None and not kept.states:
            kept.states.append(self.generator.get_state())

    def knows(self, number: int) -> bool:
        """Whether draw `number` can be made without the ones before it."""
        return self.kept is not None and number < len(self.kept.states)

    def fill(self, number: int, tensor: Tensor, draw: Draw, reference: Draw) -> None:
        """`tensor`, of the shape that the reference has, from `draw` with the noise of the reference's own one."""
        if self.kept is None:
            _fill(tensor, draw, self.generator, noise=reference.family)
            return
        if draw == reference and number in self.kept.values:
            tensor.copy_(self.kept.values[number])
            return
        self.generator.set_state(self.kept.states[number])
        _fill(tensor, draw, self.generator, noise=reference.family)
        if number + 1 == len(self.kept.states):
            self.kept.states.append(self.generator.get_state())
        if draw == reference:
            self.kept.values[number] = tensor.clone()


def _fill(tensor: Tensor, draw: Draw, generator: torch.Generator, noise: str | None = None) -> None:
    """Fill with `draw`, from noise of family `noise`: where the two differ, value and noise have equal quantiles."""
    if draw.family == "constant":
        tensor.fill_(draw.scale)
    elif draw.family == "normal" and noise in (None, "normal"):
        tensor.normal_(0.0, draw.scale, generator=generator)
    elif draw.family == "uniform" and noise in (None, "uniform"):
        tensor.uniform_(-draw.scale, draw.scale, generator=generator)
    elif draw.family == "normal":
        edge = 1 - 2.0**-24  # uniform_ can return its lower end, where the normal quantile is infinite
        tensor.uniform_(-1, 1, generator=generator).clamp_(-edge, edge).erfinv_().mul_(draw.scale * math.sqrt(2))
    elif draw.family == "uniform":
        tensor.normal_(generator=generator).div_(math.sqrt(2)).erf_().mul_(draw.scale)
    else:
        raise ValueError(f"an init returned the family {draw.family!r}; known are normal, uniform and constant")


def _reset_others(model: nn.Module, seed: int) -> None:
    """Parameters that the init leaves alone: a module that can draw them anew does so on a stream of its own name.

    It can where it has `reset_parameters`, the method that torch's own layers have for this.
    """
    for path, module in model.named_modules():
        leaf = any(True for _ in module.parameters(recurse=False))
        if leaf and not isinstance(module, (nn.Linear, nn.Embedding)) and hasattr(module, "reset_parameters"):
            with streams.forked(seed, "init", path):
                module.reset_parameters()
