"""`gptlab components`: what can fill a slot of the model, and what else is registered by name."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gptlab.cli.arguments import Parser
from gptlab.errors import ConfigError, unknown
from gptlab.texts import harmless

if TYPE_CHECKING:
    from gptlab.registry import Component

HELP = """\
usage: gptlab components [KIND] [plugins=[MODULE,...]] [--format text|md]

Lists the slots of the model and what can fill them, then probes, kinds of data, analyses, optimizers and schedules:
name, options with their defaults, one line each. Behind each kind stands the key that chooses one, and the key below
which its options are set. `plugins` adds those of your own modules; `--format md` writes the tables of the docs.

  gptlab components norm
  gptlab components 'plugins=[my_module]'"""
_PLUGINS = "plugins="


def main(arguments: Sequence[str]) -> int:
    """Print kinds and components on stdout."""
    parser = Parser()
    parser.option("--format", choices=("text", "md"), default="text")
    given = parser.read(arguments)
    if given.help:
        print(HELP)
        return 0
    from gptlab import registry

    registry.load_plugins(_plugins([word for word in given.words if "=" in word]))
    wanted = [word for word in given.words if "=" not in word]
    for kind in wanted:
        if kind not in registry.KINDS:
            raise unknown("slot", kind, registry.KINDS)
    say = _markdown if given.format == "md" else _text
    print("\n\n".join("\n".join(map(harmless, say(kind))) for kind in wanted or registry.KINDS))
    return 0


def _plugins(words: Sequence[str]) -> list[str]:
    for word in words:
        if not word.startswith(_PLUGINS):
            raise ConfigError(
                f"{word}: only plugins=[MODULE,...] can be set here.", code="components-takes-plugins", value=word
            )
    listed = ",".join(word.removeprefix(_PLUGINS).strip("[]") for word in words)
    return [name.strip() for name in listed.split(",") if name.strip()]


def _text(kind: str) -> Iterator[str]:
    from gptlab import registry

    known = registry.KINDS[kind]
    components = registry.components(kind).values()
    yield f"{kind}: {known.meaning}  ({known.chosen_by}; {known.options_key}.OPTION)"
    width = max((len(component.name) for component in components), default=0)
    for component in components:
        options = ", ".join(_options(component))
        yield f"  {component.name:{width}}  {component.summary}" + (f"  [{options}]" if options else "")


def _markdown(kind: str) -> Iterator[str]:
    from gptlab import registry

    known = registry.KINDS[kind]
    yield f"**{kind}** {known.meaning}. Chosen by `{known.chosen_by}`, options below `{known.options_key}`."
    yield ""
    yield f"| {kind} | options | reads | what it is |"
    yield "|---|---|---|---|"
    for component in registry.components(kind).values():
        options, reads = (", ".join(map(_code, words)) for words in (_options(component), component.inputs))
        yield f"| {_code(component.name)} | {options} | {reads} | {_in_cell(component.summary)} |"


def _code(word: str) -> str:
    """A name or a default between backticks, which end with it."""
    return f"`{_in_cell(word.replace('`', chr(39)))}`"


def _in_cell(text: str) -> str:
    """Text, with its author's code spans, that stays in its cell and opens no tag."""
    return re.sub(r"(`[^`]*`)|<", lambda found: found[1] or "&lt;", text).replace("|", r"\|")


def _options(component: Component) -> list[str]:
    """`eps=1e-05`, for each option with its default."""
    from gptlab.config import ProbesConfig

    found = {option.name: option.default for option in component.options}
    own = {f.name: f.default_factory for f in dataclasses.fields(ProbesConfig)}
    if component.kind == "probe" and component.name in own:  # their options stand in the schema of the config
        schema: Any = own[component.name]
        found = dataclasses.asdict(schema())
    return [f"{name}={_say(default)}" for name, default in found.items()]


def _say(value: Any) -> str:
    """As YAML has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)
