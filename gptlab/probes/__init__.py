"""Probes: measurements that stay outside the model. Each looks at a `Subject` and returns a `Measurement`.

    @register("probe", "weight_norms", metrics=[Metric("weight_norm", "L2 norm", "neither", "positive_scale", "...")])
    def weight_norms(subject: Subject, power: float = 2.0) -> Measurement:
        '''One sentence about what is measured.'''

in any importable module is all that a new one needs: its options are `probes.weight_norms.power`, and it is off until
the config names it. `metrics` declares the numbers of a run, `layer_metrics` those of the table `layers`; `static` says
that training does not change what it measures, `needs_tokens` that only a model of tokens has it.
"""

from __future__ import annotations

import dataclasses

from gptlab import registry
from gptlab.config import Config, ProbesConfig
from gptlab.probes import activations, generation, gradients, parameters, shapes
from gptlab.probes.subject import Measurement, Subject

__all__ = [
    "Measurement", "Subject", "activations", "chosen", "generation", "gradients", "measure", "parameters", "shapes",
    "why_not",
]  # fmt: skip

_OWN = frozenset(f.name for f in dataclasses.fields(ProbesConfig))  # they read their options from the config


def chosen(config: Config) -> list[registry.Component]:
    """The probes that a config turns on, in the order of its keys."""
    names = [f.name for f in dataclasses.fields(config.probes) if getattr(config.probes, f.name) is not None]
    return [registry.get("probe", name) for name in names]


def why_not(probe: registry.Component, config: Config) -> str:
    """Why a probe has nothing to look at in this architecture; empty where it has."""
    if probe.facts["needs_tokens"] and config.model.architecture != "gpt":
        return f"does not apply to architecture={config.model.architecture}"
    return ""


def measure(probe: registry.Component, subject: Subject) -> Measurement:
    """What one probe finds. TypeError where a plugin's probe returns something else."""
    options = {} if probe.name in _OWN else vars(getattr(subject.config.probes, probe.name))
    found = probe.make({}, options, subject)
    if not isinstance(found, Measurement):
        raise TypeError(f"probe {probe.name!r} returned {type(found).__name__}, not a Measurement")
    return found
