"""What an experiment computes beyond its runs, by name: `experiment.analysis: gradient_flow`.

    @register_analysis("my_analysis")
    def my_analysis(variants: Sequence[Config], seeds: int = 100) -> Findings:
        '''One sentence about the question.'''

in any importable module is all that a new one needs. It is called once, after the runs of the study, with the config of
each run, and does all its computing in this process. Its other arguments have defaults, and are what
`experiment.options` may set. `gptlab.book.analyses` holds those that gptlab brings.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gptlab import registry
from gptlab.config import Config, ExperimentConfig
from gptlab.errors import ConfigError, unknown
from gptlab.values import must_be

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUILTINS = "gptlab.book.analyses"

Value = int | float | str
Line = tuple[str, Value, str]  # of a summary: quantity, value, what it means


@dataclass
class Findings:
    """What an analysis brings back.

    `summary`: (quantity, value, what it means), the lines to remember; `tables`: file stem -> tidy rows; `figures`:
    file stem -> a function that draws it (called inside gptlab's style).
    """

    summary: list[Line] = field(default_factory=list)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    figures: dict[str, Callable[[], Figure]] = field(default_factory=dict)

    def __getitem__(self, quantity: str) -> Value:
        """The value of one line of the summary."""
        return {name: value for name, value, _ in self.summary}[quantity]


@dataclass(frozen=True)
class Analysis:
    """A registered analysis. `options`: name -> (type, default)."""

    name: str
    function: Callable[..., Findings]
    options: Mapping[str, tuple[Any, Any]]
    summary: str

    def checked_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """`given` in the declared types. ConfigError for an unknown name or a wrong type."""
        for name in given:
            if name not in self.options:
                raise unknown(f"experiment.options (analysis={self.name})", name, self.options)
        schema = dataclasses.make_dataclass("options", [(name, self.options[name][0]) for name in given])
        try:
            merged = OmegaConf.to_container(OmegaConf.merge(OmegaConf.structured(schema), dict(given)))
        except OmegaConfBaseException as error:
            name = str(error.full_key).partition("[")[0].partition(".")[0]
            raise must_be(f"experiment.options.{name}", given.get(name), self.options[name][0]) from error
        return typing.cast("dict[str, Any]", merged)

    def __call__(self, variants: Sequence[Config], **options: Any) -> Findings:
        return self.function(variants, **options)


_analyses: dict[str, Analysis] = {}
Function = TypeVar("Function", bound=Callable[..., Findings])


def register_analysis(name: str) -> Callable[[Function], Function]:
    """Decorator: make a function the analysis `name`. A name that another module has taken is refused."""

    def add(function: Function) -> Function:
        present = _analyses.get(name)
        if present and present.function.__module__ != function.__module__:
            where = present.function.__module__
            raise ConfigError(
                f"analysis {name!r} is already registered by {where}; {function.__module__} may not.",
                code="analysis-registered-twice",
                name=name,
                where=where,
            )
        hints = typing.get_type_hints(function)
        parameters = list(inspect.signature(function).parameters.values())[1:]
        for parameter in parameters:
            if parameter.default is parameter.empty:
                raise ConfigError(
                    f"analysis {name!r}: parameter {parameter.name!r} needs a default: it is an option.",
                    code="analysis-option-without-default",
                    name=name,
                )
        options = {p.name: (hints.get(p.name, Any), p.default) for p in parameters}
        registry.note(function.__module__)
        _analyses[name] = Analysis(name, function, options, (inspect.getdoc(function) or "").split("\n")[0])
        return function

    return add


def get(name: str) -> Analysis:
    """The analysis `name`, from gptlab or from a plugin that is loaded. ConfigError with the closest match."""
    importlib.import_module(BUILTINS)
    if name not in _analyses:
        raise unknown("experiment.analysis", name, _analyses)
    return _analyses[name]


def check(experiment: ExperimentConfig) -> None:
    """Refuse an analysis that does not exist, and options that it does not have."""
    if experiment.analysis is not None:
        get(experiment.analysis).checked_options(experiment.options)
    elif experiment.options:
        raise ConfigError(
            "experiment.options: would be ignored, because experiment.analysis is not set.",
            code="options-without-analysis",
            key="experiment.options",
        )


def describe(experiment: ExperimentConfig) -> str:
    """`gradient_flow (seeds=500): gradients of ...`: what comes after the runs; empty for nothing."""
    if experiment.analysis is None:
        return ""
    options = ", ".join(f"{name}={value}" for name, value in experiment.options.items())
    return f"{experiment.analysis}{f' ({options})' if options else ''}: {get(experiment.analysis).summary}"


def run(variants: Sequence[Config]) -> Findings:
    """Run the analysis that the experiment of these configs names."""
    experiment = variants[0].experiment
    analysis = get(str(experiment.analysis))
    return analysis(variants, **analysis.checked_options(experiment.options))
