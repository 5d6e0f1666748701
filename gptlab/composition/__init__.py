"""From overrides to a checked `Config`: the one way in for the command line, notebooks and tests.

(Not called `gptlab.compose`: that name is the function which the package offers, and a module would take its place.)
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from gptlab.composition.composer import Composer, Job
from gptlab.config import Config

__all__ = ["Composer", "Job", "compose"]


def compose(overrides: Sequence[str] = (), config_dirs: Sequence[str | Path] = ()) -> Config:
    """The checked config that these overrides declare: `compose(["model=tiny", "ablation=[relu,post_ln]"])`.

    `config_dirs` are searched for options after gptlab's own conf/, ./conf and GPTLAB_CONF_PATH. No global state
    changes, and a Hydra application that is running stays as it is. ConfigError for anything that cannot be run.
    """
    composer = Composer(config_dirs)
    for message in composer.warnings:
        warnings.warn(message, stacklevel=2)
    job = composer.job(overrides)
    for error in job.idle.values():
        raise error
    return job.config
