"""`gptlab components`: what can fill a slot of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gptlab.cli.arguments import split
from gptlab.errors import ConfigError, unknown

HELP = """\
usage: gptlab components [SLOT] [plugins=[MODULE,...]]

Lists the slots of the model and what can fill them: name, options with their defaults, one line each. A component is
chosen by model.SLOT=NAME, an option set by model.options.SLOT.OPTION=VALUE. `plugins` adds those of your own modules.

  gptlab components norm
  gptlab components plugins=[my_module]"""
_PLUGINS = "plugins="


def main(arguments: Sequence[str]) -> int:
    """Print slots and components on stdout."""
    given = split(arguments)
    if given.help:
        print(HELP)
        return 0
    from gptlab import registry

    registry.load_plugins(_plugins([word for word in given.words if "=" in word]))
    wanted = [word for word in given.words if "=" not in word]
    for slot in wanted:
        if slot not in registry.SLOTS:
            raise unknown("slot", slot, registry.SLOTS)
    for slot in wanted or registry.SLOTS:
        _print_slot(slot)
    return 0


def _plugins(words: Sequence[str]) -> list[str]:
    for word in words:
        if not word.startswith(_PLUGINS):
            raise ConfigError(f"{word}: only plugins=[MODULE,...] can be set here.")
    listed = ",".join(word.removeprefix(_PLUGINS).strip("[]") for word in words)
    return [name.strip() for name in listed.split(",") if name.strip()]


def _print_slot(slot: str) -> None:
    from gptlab import registry

    components = registry.components(slot).values()
    print(f"{slot}: {registry.SLOTS[slot]}  (model.{registry.key_of(slot)})")
    width = max((len(component.name) for component in components), default=0)
    for component in components:
        options = ", ".join(f"{option.name}={_say(option.default)}" for option in component.options)
        print(f"  {component.name:{width}}  {component.summary}" + (f"  [{options}]" if options else ""))
    print()


def _say(value: Any) -> str:
    return (
        {None: "null", True: "true", False: "false"}.get(value, str(value))
        if not isinstance(value, float)
        else f"{value:g}"
    )
