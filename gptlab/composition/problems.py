"""What Hydra, OmegaConf and YAML raise, in gptlab's words: one short ConfigError with place and closest match."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import yaml  # type: ignore[import-untyped]
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from gptlab.errors import ConfigError, GptlabError, unknown

GLOBAL_GROUPS = ("ablation", "experiment")  # groups whose files set keys all over the config
HEADER = "# @package _global_"


def full_error_wanted() -> bool:
    """Whether the user asked for Hydra's own errors, with traceback."""
    return os.environ.get("HYDRA_FULL_ERROR") == "1"


@contextmanager
def translated(place: str = "") -> Iterator[None]:
    """Let no error of Hydra, OmegaConf or YAML out untranslated, unless the user set HYDRA_FULL_ERROR=1.

    `place` is named where the error itself names none.
    """
    try:
        yield
    except (GptlabError, BrokenPipeError):
        raise
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, OSError, ValueError, AttributeError) as error:
        if full_error_wanted():
            raise
        raise translate(error, place) from error


def translate(error: Exception, place: str = "") -> ConfigError:
    """The ConfigError that says the same; `place` as in `translated`."""
    if isinstance(error, yaml.YAMLError):
        return _yaml(error)
    if isinstance(error, AttributeError) and not isinstance(error, OmegaConfBaseException):
        # OmegaConf merges into a node that is null without looking.
        return ConfigError(f"{place}: sets a key inside of something that is null here, such as a probe left out.")
    if isinstance(error, OverrideParseException):
        return ConfigError(f"{error.override}: not an override that can be read ({_first_line(error)}).")
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options is not None:
        group, _, name = error.missing_cfg_file.rpartition("/")
        return unknown(f"{group}={name}", name, error.options)
    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__ or error.__context__
    if isinstance(cause, yaml.YAMLError):
        return _yaml(cause)
    if isinstance(cause, OmegaConfBaseException):
        return _omegaconf(_place(error), cause)
    words = " ".join(str(error).split()) or type(error).__name__
    if words.startswith("Ambiguous value for argument "):
        override = words.split("'")[1]
        return ConfigError(f"{override}: several values make a sweep; one is wanted here. A list is written [a,b].")
    return ConfigError(f"{place}: {words}" if place else words)


def _yaml(error: yaml.YAMLError) -> ConfigError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or _first_line(error)
    if "'\\t'" in problem:
        problem = "a tab stands where only spaces may; YAML indents with spaces"
    where = f"{mark.name}, line {mark.line + 1}" if mark else "YAML"
    return ConfigError(f"{where}: {problem}.")


def _omegaconf(place: str, error: OmegaConfBaseException) -> ConfigError:
    key = str(error.full_key or error.key or "")
    group = place.partition("/")[0]
    if isinstance(error, (ConfigKeyError, ConfigAttributeError)):
        if group in GLOBAL_GROUPS and key.split(".")[0] == group and "/" in place:
            return ConfigError(
                f"{place}.yaml: its first line must be {HEADER!r}, because it sets keys all over the config."
            )
        from gptlab.validation import unknown_key

        words = str(unknown_key(key))
    else:
        words = f"{key}: {_first_line(error)}." if key not in place else f"{_first_line(error)}."
    return ConfigError(f"{place}: {words}" if place else words)


def _place(error: BaseException) -> str:
    """What Hydra was busy with: `seed=x` for an override, `ablation/mine` for a file."""
    words = _first_line(error)
    if words.startswith("Error merging override "):
        return words.removeprefix("Error merging override ")
    if words.startswith("Could not override ") and "use +" in str(error):
        return str(error).rpartition("use +")[2]
    if words.startswith("In '"):
        return words.split("'")[1]
    return ""


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
