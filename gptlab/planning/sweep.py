"""The grid that a command asks for: each run as a list of overrides.

Hydra's sweeper would drop an override when a second one has the same key, and start nothing, successfully, for a glob
without a match. Its parser is used, its product is not.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from hydra.core.override_parser.types import Glob, Override
from omegaconf import OmegaConf

from gptlab.declare.composer import Composer
from gptlab.declare.option_texts import members
from gptlab.declare.overrides import normalised, sets_values
from gptlab.errors import ConfigError, closest


def jobs(composer: Composer, overrides: Sequence[str]) -> list[list[str]]:
    """Every combination, the first key turning slowest. The experiment sweeps what the command line leaves open."""
    given = composer.parse(overrides)
    open_keys = experiment_sweep(composer, given)
    for override in given:
        open_keys.pop(override.key_or_group, None)
    parsed = composer.parse([f"{key}={values}" for key, values in open_keys.items()]) + given
    return [list(combination) for combination in itertools.product(*(choices(composer, o) for o in parsed))]


def experiment_sweep(composer: Composer, given: Sequence[Override]) -> dict[str, str]:
    """The hydra.sweeper.params of the chosen experiment: key -> values as text."""
    chosen = [o for o in given if o.key_or_group == "experiment" and not sets_values(o)]
    names = [text for override in chosen for text in choices(composer, override)]
    if len(names) > 1:
        raise ConfigError(
            f"{chosen[0].input_line}: one command runs one experiment. Run them in turn.",
            code="one-experiment-per-command",
            override=chosen[0].input_line,
        )
    params = OmegaConf.select(composer.load(names), "hydra.sweeper.params") or {}
    sweep: dict[str, str] = {}
    for key, values in params.items():
        if OmegaConf.is_config(values) or values is None:
            form = ",".join(str(value) for value in values) if OmegaConf.is_list(values) else "a,b"
            where = names[0] if names else "config.yaml"
            raise ConfigError(
                f"hydra.sweeper.params.{key} in {where}: a sweep is written as one string, {key}: {form}  "
                "(a YAML list would stack its members in one run).",
                code="sweep-as-yaml-list",
                where=where,
                name=str(key),
                form=form,
            )
        sweep[str(key).lstrip("+")] = str(values)
    return sweep


def choices(composer: Composer, override: Override) -> list[str]:
    """The override once per value. ConfigError when there is none."""
    if not override.is_sweep_override():
        return [str(override.input_line)]
    key = override.get_key_element()
    values = members(str(override.input_line)) or [str(value) for value in composer.sweep_values(override)]
    if not values:
        raise _nothing(override, composer.groups.get(override.key_or_group, []))
    return normalised(f"{key}={value}" for value in values)


def _nothing(override: Override, options: Sequence[str]) -> ConfigError:
    glob: Any = override.value()
    if not isinstance(glob, Glob):
        return ConfigError(
            f"{override.input_line}: no values, so nothing would run.",
            code="sweep-of-nothing",
            override=override.input_line,
        )
    wanted = " ".join(glob.include).replace("*", "")
    starts = {option[: len(wanted)]: option for option in options}  # `pots*` is near `post_ln` by its beginning
    near = starts.get(closest(wanted, starts) or "")
    hint = f" The closest is {near}." if near else ""
    return ConfigError(
        f"{override.input_line}: the glob matches nothing.{hint} Allowed: {', '.join(options) or 'nothing'}.",
        code="glob-matches-nothing",
        suggestion=near,
        override=override.input_line,
    )
