"""One config from overrides, with whatever the plan would solve for it solved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gptlab.config import Config
from gptlab.declare import composer
from gptlab.errors import ConfigError
from gptlab.planning.plan import expand


def compose(overrides: Sequence[str] = (), config_dirs: Sequence[str | Path] = ()) -> Config:
    """The checked config that these overrides declare: `compose(["model=tiny", "ablation=[relu,post_ln]"])`.

    `config_dirs` are searched for options after gptlab's own conf/, ./conf and GPTLAB_CONF_PATH. With a match, it is
    the twin's. No global state changes, and a Hydra application that is running stays as it is. ConfigError for
    anything that cannot be run.
    """
    config = composer.compose(overrides, config_dirs)
    refuse_untuned(config)
    return config if config.match.cost == "none" else expand(overrides, config_dirs).runs[-1].config


def refuse_untuned(config: Config) -> None:
    """ConfigError for a single config that asks to be tuned: that takes trials."""
    if config.tune.keys:
        raise ConfigError(
            f"tune.keys=[{','.join(config.tune.keys)}]: would be ignored here, because tuning takes trials. "
            'sweep([..., "tune=learning_rate"]) makes them.',
            code="tune-without-trials",
            key="tune.keys",
            value=config.tune.keys,
        )


def refuse_unsolved(config: Config) -> None:
    """ConfigError for a config, made by hand, that asks for a match or for tuning: it takes other runs beside it."""
    refuse_untuned(config)
    if config.match.cost != "none":
        raise ConfigError(
            f'match.cost={config.match.cost}: would be ignored here. compose([..., "match={config.match.cost}"]) and '
            "sweep(...) solve it; what they return has match.cost=none.",
            code="match-unsolved",
            key="match.cost",
            value=config.match.cost,
        )
