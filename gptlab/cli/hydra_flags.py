"""Hydra's own flags (--help, --cfg, --info, ...), answered by Hydra over gptlab's configs; errors in gptlab's words."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr

import hydra
from hydra.core.plugins import Plugins
from omegaconf import DictConfig

from gptlab.cli.arguments import CONFIG_DIR, split
from gptlab.declare.composer import HYDRA_BASE, Composer, store_schema
from gptlab.declare.overrides import GROUPS, normalised
from gptlab.declare.problems import translated
from gptlab.declare.slips import foreign_flag
from gptlab.declare.sources import CONF_DIR, UserFolders
from gptlab.errors import ConfigError, unknown

_ANSWERED = {
    "-h", "--help", "--hydra-help", "-c", "--cfg", "-i", "--info", "-sc", "--shell-completion",
}  # fmt: skip
_ALONG = {"-p", "--package", "--resolve", "-cd", CONFIG_DIR, "-m", "--multirun", "-r", "--run"}
_VALUED = {"-c", "--cfg", "-p", "--package"}


def wanted(arguments: Sequence[str]) -> bool:
    """Whether Hydra is asked something. ConfigError for a flag that neither of us knows."""
    flags = [text.partition("=")[0] for text in arguments if text.startswith("-")]
    for flag in flags:
        if flag not in _ANSWERED | _ALONG:
            place = next(at for at, text in enumerate(arguments) if text.partition("=")[0] == flag)
            value = arguments[place].partition("=")[2] or "".join(arguments[place + 1 : place + 2])
            error = foreign_flag(flag, value, GROUPS)
            if error:
                raise error
            raise unknown("option", flag, (f for f in (_ANSWERED | _ALONG | {"--version"}) if f.startswith("--")))
    return any(flag in _ANSWERED for flag in flags)


def main(arguments: Sequence[str]) -> int:
    """Let Hydra answer; nothing is run."""
    if any(text.partition("=")[0] in ("-c", "--cfg") for text in arguments):
        _compose_first(arguments)
    store_schema()
    Plugins.instance().register(UserFolders)
    ask = hydra.main(version_base=HYDRA_BASE, config_path=str(CONF_DIR), config_name="config")(_nothing)
    complaints = io.StringIO()
    try:
        with translated(), _process(["gptlab", *normalised(arguments)]), redirect_stderr(complaints):
            ask()
    except SystemExit as stop:
        if stop.code:  # argparse: a page of usage, and the point in the last line
            last = (complaints.getvalue().splitlines() or ["Hydra gave up"])[-1]
            raise ConfigError(last.removeprefix("gptlab: error: ")) from None
    print(complaints.getvalue(), end="", file=sys.stderr)
    return 0


def _compose_first(arguments: Sequence[str]) -> None:
    """Whatever is wrong with the config is said in gptlab's words; Hydra would also pass over a file of the user's."""
    given = split(arguments, dict.fromkeys(_VALUED), (_ANSWERED | _ALONG) - _VALUED)
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
