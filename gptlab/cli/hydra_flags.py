"""Hydra's own flags (--cfg, --info, ...), answered by Hydra over gptlab's configs; errors in gptlab's words."""

from __future__ import annotations

import io
import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import hydra
from hydra.core.plugins import Plugins
from omegaconf import DictConfig

from gptlab.declare.composer import HYDRA_BASE, Composer, store_schema
from gptlab.declare.hydra_errors import translated
from gptlab.declare.layer_spans import for_hydra, printed
from gptlab.declare.overrides import normalised
from gptlab.declare.sources import CONF_DIR, UserFolders
from gptlab.errors import ConfigError


def main(arguments: Sequence[str], given: Namespace) -> int:
    """Let Hydra answer; nothing is run. `given`: the arguments as the command line has read them."""
    if given.cfg:
        _compose_first(given)
    store_schema()
    Plugins.instance().register(UserFolders)
    ask = hydra.main(version_base=HYDRA_BASE, config_path=str(CONF_DIR), config_name="config")(_nothing)
    words = ["gptlab", *map(for_hydra, normalised(arguments))]
    complaints, answer = io.StringIO(), io.StringIO()
    try:
        with translated(), _process(words), redirect_stderr(complaints), redirect_stdout(answer):
            ask()
    except SystemExit as stop:
        if stop.code:  # argparse: a page of usage, and the point in the last line
            last = (complaints.getvalue().splitlines() or ["Hydra gave up"])[-1]
            raise ConfigError(last.removeprefix("gptlab: error: "), code="hydra-flag") from None
    finally:
        print(printed(answer.getvalue()), end="")
    print(complaints.getvalue(), end="", file=sys.stderr)
    return 0


def _compose_first(given: Namespace) -> None:
    """Whatever is wrong with the config is said in gptlab's words; Hydra would also pass over a file of the user's."""
    composer = Composer(given.config_dirs)
    composer.parse(given.words)
    composer.load(normalised(given.words))


def _nothing(config: DictConfig) -> None:
    raise AssertionError("only questions come here")


@contextmanager
def _process(argv: list[str]) -> Iterator[None]:
    """Hydra reads sys.argv, and raises its errors, instead of printing them, only when this variable is set."""
    before, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv, os.environ["HYDRA_FULL_ERROR"] = argv, "1"
    try:
        yield
    finally:
        sys.argv = before
        if full is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full
