"""What Hydra, OmegaConf and YAML raise, in gptlab's words: one short ConfigError with place and closest match.

`repository` has looked at the user's files before; this is for overrides, and for what nobody foresaw.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import yaml  # type: ignore[import-untyped]
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from gptlab.declare.layer_spans import as_written
from gptlab.declare.omegaconf_errors import of_override, quoted
from gptlab.declare.sweep_functions import FUNCTIONS
from gptlab.declare.yaml_slips import explained
from gptlab.errors import ConfigError, GptlabError, unknown

_EXPECTED = (
    HydraException, OmegaConfBaseException, yaml.YAMLError, OSError, ValueError, AttributeError, RecursionError
)  # fmt: skip
OPTIONS = "gptlab --help"  # the command that lists the options of every group


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
    except _EXPECTED as error:
        if full_error_wanted():
            raise
        raise translate(error, place) from error


def translate(error: BaseException, place: str = "") -> ConfigError:
    """The ConfigError that says the same; `place` as in `translated`."""
    if isinstance(error, yaml.YAMLError):
        return explained(error, "", _near(error))
    if isinstance(error, RecursionError):
        return ConfigError(f"{place}: a defaults list leads back to itself.", code="defaults-circle", place=place)
    if isinstance(error, AttributeError) and not isinstance(error, OmegaConfBaseException):
        # OmegaConf merges into a node that is null without looking.
        return ConfigError(
            f"{place}: sets a key inside of something that is null here, such as a probe left out.",
            code="inside-null",
            place=place,
        )
    if isinstance(error, OverrideParseException):
        text = as_written(str(error.override)).removeprefix("++")
        words, slip = _slip(error, text)
        return ConfigError(f"{text}: {words}", code="override-grammar", override=text, cause=slip)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _missing(error, place)
    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__ or error.__context__
    if isinstance(cause, yaml.YAMLError):
        return explained(cause, "", _near(cause))
    if isinstance(cause, OmegaConfBaseException):
        return of_override(_place(error), cause)
    said = " ".join(str(error).split()) or type(error).__name__
    if said.startswith("Ambiguous value for argument "):
        override = said.split("'")[1]
        return ConfigError(
            f"{override}: several values make a sweep; one is wanted here. A list is written [a,b].",
            code="sweep-where-one-is-allowed",
            override=override,
        )
    return ConfigError(f"{place}: {said}" if place else said, code="hydra-said")


def _missing(error: MissingConfigException, place: str) -> ConfigError:
    group, _, name = str(error.missing_cfg_file).rpartition("/")
    if error.options is not None:
        return unknown(f"{group}={name}", name, error.options, OPTIONS)
    named_in = re.match(r"In '([^']+)'", str(error))
    where = f"{named_in[1]}.yaml" if named_in else place
    return ConfigError(
        f"{where}: its defaults list names {group}/{name}, and there is no such file.",
        code="defaults-names-no-file",
        where=where,
        group=group,
        name=name,
    )


def _near(error: yaml.YAMLError) -> str:
    """The file that YAML complains of, from here."""
    mark = getattr(error, "problem_mark", None)
    return str(mark.name).removeprefix(f"{os.getcwd()}{os.sep}") if mark else ""


def _slip(error: OverrideParseException, text: str) -> tuple[str, str]:
    """(sentence, cause): what is wrong with the grammar of an override; `text` as it was typed."""
    key, _, value = text.partition("=")
    said = " ".join(str(error).split())
    function = re.search(r"Unknown function '(\w+)'", said)
    if function:
        return (
            f"there is no function {function[1]!r}. Allowed: {', '.join(FUNCTIONS)}, and quotes around other text.",
            "no-such-function",
        )
    evaluated = re.search(r"while evaluating '(.*)': (.*?) See https", said)
    if evaluated:
        return f"{evaluated[2]}. Ranges are range(start,stop,step).", "arguments"
    if key != key.strip() or value != value.strip():
        return f"no spaces around the equals sign: {key.strip()}={value.strip()}.", "spaces"
    if re.search(r"\s\S+=", value):
        return "more than one override in one word. Leave a space outside of quotes between them.", "two-overrides"
    if not re.fullmatch(r"[+~]{0,2}[\w./@-]+", key) or ".." in key or key.strip("+~").startswith(".") or key[-1] == ".":
        return f"{key!r} is no key. A key is names with dots between them, as in model.n_layers.", "key"
    for opening, closing in ("[]", "{}", "()"):
        if value.count(opening) != value.count(closing):
            return (
                f"{opening} and {closing} do not match. Text that has them goes in quotes: {quoted(key, value)}",
                "brackets",
            )
    if any(value.count(quote) % 2 for quote in "'\""):
        return "a quote is not closed. (The shell takes quotes away; put the word in the other kind.)", "quote"
    if ",," in value or value.startswith(",") or value.endswith(","):
        return "a value is missing beside a comma.", "comma"
    return (
        f"cannot be read. Text with other characters than letters and digits goes in quotes: {quoted(key, value)}",
        "unreadable",
    )


def _place(error: BaseException) -> str:
    """What Hydra was busy with: `seed=x` for an override, `ablation/mine` for a file."""
    said = as_written(_first_line(error))
    if said.startswith("Error merging override "):
        return said.removeprefix("Error merging override ")
    if said.startswith("Could not override ") and "use +" in str(error):
        return str(error).rpartition("use +")[2]
    if said.startswith("In '"):
        return said.split("'")[1]
    return ""


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
