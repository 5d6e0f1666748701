"""What an experiment computes beyond its runs, by name: `experiment.analysis: gradient_flow`.

    @register("analysis", "my_analysis")
    def my_analysis(variants: Sequence[Config], seeds: int = 100) -> Findings:
        '''One sentence about the question.'''

in any importable module is all that a new one needs. It is called once, after the runs of the study, with the config of
each run, and does all its computing in this process. Its other arguments have defaults, and are what
`experiment.options` may set. `gptlab.book.analyses` holds those that gptlab brings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from gptlab import registry
from gptlab.config import Config, ExperimentConfig
from gptlab.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


Function = TypeVar("Function", bound=Callable[..., Findings])


def register_analysis(name: str) -> Callable[[Function], Function]:
    """`register("analysis", name)`, by its older name."""
    return registry.register("analysis", name)


def get(name: str) -> registry.Component:
    """The analysis `name`, from gptlab or from a plugin that is loaded. ConfigError with the closest match."""
    return registry.get("analysis", name)


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
    found = get(str(experiment.analysis)).make({}, experiment.options, variants)
    assert isinstance(found, Findings)
    return found
