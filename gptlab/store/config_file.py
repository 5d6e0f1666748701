"""config.yaml of a run, written and read back: the resolved config, in which a text that holds `${` is text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gptlab.config import Config, stored
from gptlab.store import files
from gptlab.store.damage import DamagedError, parsing
from gptlab.store.names import CONFIG


def write_config(folder: Path, config: Config) -> None:
    """Write the config of the run in `folder`. StorageError when that cannot be done."""
    from omegaconf import OmegaConf

    files.write_text(folder / CONFIG, OmegaConf.to_yaml(literal(stored(config))))


def read_config(folder: Path) -> dict[str, Any]:
    """The config of the run in `folder`, as a nested dict of plain values. DamagedError when it cannot be read."""
    with parsing(CONFIG):
        return parse_config((folder / CONFIG).read_text(encoding="utf-8"))


def parse_config(text: str) -> dict[str, Any]:
    """What config.yaml says. DamagedError when it is no config."""
    import yaml  # type: ignore[import-untyped]

    try:
        with parsing(CONFIG):
            found = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        raise DamagedError(f"{CONFIG}: not valid YAML" + (f" (line {place.line + 1})" if place else "")) from error
    if not isinstance(found, dict):
        raise DamagedError(f"{CONFIG}: not a config")
    plain = _meant(found)
    assert isinstance(plain, dict)
    return plain


def literal(value: Any) -> Any:
    """`value` with every `${` escaped, so that text which holds one comes back as it was."""
    if isinstance(value, dict):
        return {key: literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [literal(item) for item in value]
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", value) if isinstance(value, str) else value


def _meant(value: Any) -> Any:
    """The inverse of `literal`. Keys are texts, as those of a config are."""
    if isinstance(value, dict):
        return {str(key): _meant(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_meant(item) for item in value]
    if isinstance(value, str) and "${" in value:
        return re.sub(r"(\\+)\$\{", lambda found: "\\" * ((len(found[1]) - 1) // 2) + "${", value)
    return value
