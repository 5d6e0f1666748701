"""The one registry: kind -> name -> component, and how outside modules add theirs.

    @register("norm", "rmsnorm")
    class RMSNorm(nn.Module):
        '''x / rms(x), scaled.'''
        def __init__(self, dim: int, eps: float = 1e-5): ...

is all that a component needs, in any importable module. Its signature is its declaration: see `gptlab.signatures`. The
slots of the model are kinds, and so are probes, kinds of data, analyses, optimizers and schedules.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, TypeVar

from gptlab import metrics
from gptlab.config import DataConfig, ModelConfig, TrainConfig
from gptlab.errors import ConfigError, GptlabError, unknown
from gptlab.signatures import Component, Option, read

__all__ = ["KINDS", "SLOTS", "Component", "Option", "components", "get", "load_plugins", "register"]

SLOTS: dict[str, str] = {
    "norm": "normalises the features of each token",
    "activation": "the nonlinearity inside the feed-forward layer",
    "attention": "mixes information across tokens",
    "feed_forward": "transforms each token on its own",
    "position": "tells the model where a token stands",
    "skip": "brings back to the stream what it was further down",
    "shortcut": "joins a branch to the residual stream",
    "block": "one layer of the model: which branches it has, and how they meet",
    "head": "turns features into logits",
    "init": "chooses the distribution of every weight",
}
SLOT_KEYS = {"block": "layout"}  # where the key of the model config has another name than the slot that it fills
SHORTCUTS = ("shortcut_attention", "shortcut_feed_forward")  # inputs of these names arrive as built shortcuts
SLOT_INPUTS: dict[str, frozenset[str]] = {"norm": frozenset({"dim"})}  # what a slot is given beyond the model keys
ENTRY_POINT_GROUP = "gptlab.components"
BUILTINS = "gptlab.model"


def _keys(schema: type, *without: str) -> frozenset[str]:
    return frozenset(f.name for f in dataclasses.fields(schema)) - set(without)


MODEL_KEYS = _keys(ModelConfig, "options", "architecture", "layers", "pattern")
DATA_KEYS = _keys(DataConfig, "source", "prompt", "options")
TRAIN_KEYS = _keys(TrainConfig, "optimizer", "schedule", "options")
TEXT_TOKENIZERS = ("gpt2", "byte", "char")


@dataclass(frozen=True)
class Kind:
    """One kind of thing that can be registered."""

    meaning: str
    chosen_by: str  # the config key that names one; NAME stands for its name
    options_key: str  # below which its options are set
    builtins: tuple[str, ...]  # the modules that register gptlab's own
    offered: frozenset[str] = frozenset()  # parameters of these names are inputs
    first: tuple[str, ...] = ()  # what each is handed by position
    facts: Mapping[str, Any] = field(default_factory=dict)  # what can be said in `register` -> if it is not said


def key_of(slot: str) -> str:
    """The key of the model config that names the component of a slot."""
    return SLOT_KEYS.get(slot, slot)


def _slot(slot: str, meaning: str) -> Kind:
    offered = MODEL_KEYS | SLOTS.keys() | {"layer", "make_part"} | SLOT_INPUTS.get(slot, frozenset())
    return Kind(meaning, f"model.{key_of(slot)}", f"model.options.{slot}", (BUILTINS,), offered)


KINDS: dict[str, Kind] = {slot: _slot(slot, meaning) for slot, meaning in SLOTS.items()} | {
    "probe": Kind(
        "measures a model from outside", "probes.NAME", "probes.NAME", ("gptlab.probes",),
        first=("subject",),
        # `metrics`: numbers of a run; `layer_metrics`: rows by layer; `static`: training changes nothing of it;
        # `needs_tokens`: only a model of tokens has it.
        facts={"metrics": (), "layer_metrics": (), "static": False, "needs_tokens": False},
    ),
    "data": Kind(
        "where the tokens come from", "data.source", "data.options",
        tuple(f"gptlab.data.{name}" for name in (
            "texts", "huggingface", "sentences", "markov", "induction", "brackets", "numbers"
        )),
        offered=DATA_KEYS | {"vocab_size", "seed"},
        facts={"tokenizers": TEXT_TOKENIZERS},  # those that can read it; none where there are no tokens
    ),
    "analysis": Kind(
        "computes beyond the runs of a study", "experiment.analysis", "experiment.options", ("gptlab.book.analyses",),
        first=("variants",),
    ),
    "optimizer": Kind(
        "updates the weights", "train.optimizer", "train.options.optimizer", ("gptlab.training.optimizers",),
        offered=TRAIN_KEYS, first=("groups",),
        # `elementwise`: each weight is updated by itself, so a small model may lie in one buffer; `states`: numbers
        # that it keeps for each weight.
        facts={"elementwise": False, "states": 2},
    ),
    "schedule": Kind(
        "the learning rate after warm-up, step by step", "train.schedule", "train.options.schedule",
        ("gptlab.training.schedule",), offered=TRAIN_KEYS | {"total"}, first=("step",),
    ),
}  # fmt: skip

Factory = TypeVar("Factory", bound=Callable[..., Any])

_count = 0  # registrations of whatever kind: a plugin that adds none is a mistake
_registrars: set[str] = set()  # modules, gptlab's and torch's aside, of which something is registered
_empty: dict[str, int] = {}  # plugins that were imported and registered nothing, with the count at that time
_components: dict[str, dict[str, Component]] = {kind: {} for kind in KINDS}


def register(kind: str, name: str, **facts: Any) -> Callable[[Factory], Factory]:
    """Decorator: make a class or function the component `name` of `kind`. A taken name is refused.

    `facts`: what its kind wants to know beside the signature, such as the `tokenizers` of data. See `KINDS`.
    """

    def add(factory: Factory) -> Factory:
        if kind not in KINDS:
            raise unknown("slot", kind, KINDS)
        known = KINDS[kind]
        for fact in facts:
            if fact not in known.facts:
                raise unknown(f"register({kind!r}, {name!r})", fact, known.facts)
        component = read(
            kind, name, factory, known.offered, known.options_key.replace("NAME", name), len(known.first)
        )  # fmt: skip
        if not _is_own(component.module):
            _load_builtins(kind)  # they were there first: a plugin that takes one of their names is told
        _refuse_taken(_components[kind].get(name), component)
        said = {**known.facts, **facts}
        for fact, source in (("metrics", name), ("layer_metrics", "")):
            if fact in said:
                said[fact] = tuple(metrics.declare(replace(metric, source=source)) for metric in said[fact])
        _components[kind][name] = replace(component, facts=said)
        return factory

    return add


def _refuse_taken(present: Component | None, component: Component) -> None:
    """ConfigError when another definition has the name. The same one may come again, as reloading notebooks do."""
    global _count
    if present and (present.module, present.factory.__qualname__) != (component.module, component.factory.__qualname__):
        raise ConfigError(
            f"{present.kind} {present.name!r} is already registered by {present.module}; {component.module} may not.",
            code="component-registered-twice",
            kind=present.kind,
            name=present.name,
            module=present.module,
            other=component.module,
        )
    _count += 1
    if not _is_own(component.module) and component.module.partition(".")[0] != "torch":
        _registrars.add(component.module)


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == "gptlab"


def _load_builtins(kind: str) -> None:
    for module in KINDS[kind].builtins:
        importlib.import_module(module)


def components(kind: str) -> dict[str, Component]:
    """All components of a kind by name, gptlab's own first."""
    if kind not in KINDS:
        raise unknown("slot", kind, KINDS)
    _load_builtins(kind)
    load_installed()
    return dict(_components[kind])


def get(kind: str, name: str, where: str | None = None) -> Component:
    """The component `name` of `kind`. ConfigError, naming the key `where`, when there is none."""
    known = components(kind)
    if name not in known:
        raise unknown(where or KINDS[kind].chosen_by, name, known, f"gptlab components {kind}")
    return known[name]


@functools.cache
def load_installed() -> None:
    """Import gptlab's own components and those that installed packages offer as entry points. Once per process."""
    importlib.import_module(BUILTINS)
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        _import(entry.module, f"entry point {entry.name!r}")


def load_plugins(modules: Iterable[str]) -> None:
    """Import the user's modules, so that their components are registered."""
    importlib.import_module(BUILTINS)
    for module in modules:
        before, new = _count, module not in sys.modules
        _import(module, "plugins")
        if new and _count == before and not _passes_on(sys.modules[module]):
            _empty[module] = _count
        if _empty.get(module) == _count:  # with more registered since, it may have been mended and loaded again
            raise ConfigError(
                f"plugins: {module} registers nothing. A component needs @register(SLOT, NAME).",
                code="plugin-registers-nothing",
                key="plugins",
                module=module,
            )


def _passes_on(plugin: ModuleType) -> bool:
    """Whether a module has in it another one that registered something, or a part of one."""
    names = [value.__name__ for value in vars(plugin).values() if inspect.ismodule(value)]
    names += [v.__module__ for v in vars(plugin).values() if inspect.isclass(v) or inspect.isfunction(v)]
    return any(f"{registrar}.".startswith(f"{name}.") for name in names for registrar in _registrars)


def _import(module: str, where: str) -> None:
    try:
        importlib.import_module(module)
    except GptlabError as error:
        raise ConfigError(
            f"{where}: {module}: {error}", code="plugin-refused", where=where, module=module, cause=error.code
        ) from error
    except ModuleNotFoundError as error:
        missing = error.name or module
        itself = f"{module}.".startswith(f"{missing}.")  # or the package that it should be in
        folders = list(dict.fromkeys([os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))
        hint = f"{module} needs it."
        if itself:
            hint = f"Looked for {missing.replace('.', '/')}.py in {', '.join(folders)}. PYTHONPATH adds folders."
        said = f"{where}: no module named {missing!r}. {hint}"
        raise ConfigError(
            said, code="no-such-module", key=where, value=missing, module=module, searched=folders
        ) from error
    except (Exception, SystemExit) as error:  # a script without a main guard may call sys.exit()
        raise ConfigError(
            f"{where}: importing {module!r} raised {type(error).__name__}: {error}",
            code="plugin-raised",
            where=where,
            module=module,
            raised=type(error).__name__,
        ) from error
