"""`gptlab explain-id`: what makes a run this run, and why two ids differ."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptlab.cli.arguments import Parser
from gptlab.config import Config, flatten
from gptlab.errors import ConfigError, GptlabError
from gptlab.identity import SCHEMA_VERSION, identity, identity_keys, left_out
from gptlab.texts import harmless_json, printable

HELP = """\
usage: gptlab explain-id A [B] [--config-dir FOLDER]

Shows what goes into the id of A and what is left out, with the reason; with B, why the two ids differ. A and B are run
folders, beginnings of ids of runs in outputs/, or overrides in quotes.

  gptlab explain-id "model=tiny ablation=relu"
  gptlab explain-id "model=tiny" "model=tiny threads=4"
  gptlab explain-id outputs/runs/relu-s123-0f8936b4 "model=tiny ablation=relu" """


@dataclass(frozen=True)
class Named:
    """A config, how the user named it, and the id that its run recorded, if it is a run."""

    name: str
    config: Config | dict[str, Any]
    recorded: str

    @property
    def id(self) -> str:
        return identity(self.config)

    @property
    def left_out(self) -> dict[str, Any]:
        plain = dataclasses.asdict(self.config) if isinstance(self.config, Config) else self.config
        return {key: value for key, value in flatten(plain).items() if left_out(key)}


def main(arguments: Sequence[str]) -> int:
    """Print the explanation on stdout. 0, also when two ids differ: that is no failure."""
    given = Parser(overrides=True).read(arguments)
    if given.help:
        print(HELP)
        return 0
    if len(given.words) not in (1, 2):
        raise ConfigError(
            "explain-id: name one or two runs; put the overrides of one run in quotes.", code="explain-id-words"
        )
    found = [_named(word, given.config_dirs) for word in given.words]
    if len(found) == 1:
        _explain(found[0])
    else:
        _compare(*found)
    return 0


def _named(word: str, config_dirs: Sequence[str]) -> Named:
    from gptlab.store.config_file import read_config
    from gptlab.store.damage import DamagedError
    from gptlab.store.find_runs import find_run, recorded_id

    if "=" in word and not Path(word).is_dir():
        from gptlab.planning.composing import compose

        try:
            words = shlex.split(word)
        except ValueError as error:
            raise ConfigError(
                f"explain-id: a quote is not closed in {word!r}.", code="explain-id-quote", value=word
            ) from error
        return Named(word, compose(words, config_dirs), "")
    folder = find_run(word, Path(Config().output_dir))
    try:
        return Named(str(folder), read_config(folder), recorded_id(folder))
    except DamagedError as damage:
        raise GptlabError(f"{folder}: {damage}.", code="explain-id-damaged", folder=folder) from damage


def _explain(one: Named) -> None:
    print(f"id  {one.id}")
    _say_recorded(one)
    print(f"\nschema_version = {SCHEMA_VERSION}")
    for key, value in sorted(identity_keys(one.config).items()):
        print(harmless_json(f"{key} = {_say(value)}"))
    print("\nleft out:")
    for key, value in one.left_out.items():
        print(f"  {harmless_json(f'{key} = {_say(value)}')}  ({left_out(key)})")


def _compare(one: Named, other: Named) -> None:
    for letter, named in zip("AB", (one, other), strict=True):
        print(f"{letter}  {named.id}  {printable(named.name)}")
        _say_recorded(named)
    keys = identity_keys(one.config), identity_keys(other.config)
    different = _differences(*keys)
    print("\nThe ids are equal: it is the same run." if not different else "\nThe ids differ by:")
    for line in different:
        print(f"  {harmless_json(line)}")
    ignored = _differences(one.left_out, other.left_out)
    if ignored:
        print("\nDifferent too, but left out of the id:")
        for line in ignored:
            print(f"  {harmless_json(line)}  ({left_out(line.partition(':')[0])})")


def _differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    lines = []
    for key in sorted({*one, *other}):
        a, b = (_say(keys[key]) if key in keys else "(no such key)" for keys in (one, other))
        if a != b:
            lines.append(f"{key}: {a} | {b}")
    return lines


def _say_recorded(named: Named) -> None:
    if named.recorded and not named.id.startswith(named.recorded):
        print(f"    recorded as {named.recorded}: config.yaml was edited, or made by another version of gptlab")


def _say(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
