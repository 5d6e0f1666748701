"""What may be asked of sampling: each key in its range, and none that would do nothing."""

from __future__ import annotations

from collections.abc import Callable

from gptlab.config import GenerationProbe, check_fields
from gptlab.errors import ConfigError, wrong_value


def check_sampling(how: GenerationProbe, named: Callable[[str], str]) -> None:
    """ConfigError for a key out of its range, or without effect. `named`: what the user calls a key of `how`."""
    try:
        check_fields(how)
    except ConfigError as error:
        name = named(error.key)
        raise error.reworded(f"{name}{str(error).removeprefix(error.key)}", key=name) from None
    for key in ("top_k", "top_p", "min_p"):
        value = getattr(how, key)
        if value is not None and how.temperature == 0:
            raise without_effect(named(key), value, named("temperature"))
    if "" in how.stop:
        raise ConfigError(f"{named('stop')}: an empty text ends nothing.", code="stop-empty", key=named("stop"))


def without_effect(key: str, value: object, temperature: str) -> ConfigError:
    """The error for what sampling would read, where there is none. `temperature`: what the user calls that."""
    return wrong_value(
        key,
        value,
        f"would be ignored: {temperature} is 0, and the most likely token is taken.",
        code="sampling-without-temperature",
    )
