"""`gptlab inspect`: what a file of weights holds, before anything is built from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gptlab.cli.arguments import Parser
from gptlab.errors import ConfigError
from gptlab.store.json_text import json_text
from gptlab.texts import harmless, harmless_json

if TYPE_CHECKING:
    from gptlab.check.inspection import Inspection

HELP = """\
usage: gptlab inspect PATH [--format text|json]

Says what is at PATH: its format and family, the model that it implies, how many parameters, and which names are
missing or left over. PATH is a folder of Hugging Face's (config.json and safetensors, in shards too), the book's .pth,
nanoGPT's ckpt.pt, GGUF, or a run of gptlab's. Headers and tensors are read, code never is: a pickle that holds any is
refused. Exit code 1 when the file does not hold the whole of the model that it implies.

  gptlab inspect gpt2/
  gptlab model.weights=gpt2/ ablation=none,no_shortcut_attention"""
MOST = 12  # names of one list that are shown


def main(arguments: Sequence[str]) -> int:
    """Print what is there."""
    parser = Parser()
    parser.option("--format", choices=("text", "json"), default="text")
    given = parser.read(arguments)
    if given.help:
        print(HELP)
        return 0
    if len(given.words) != 1:
        raise ConfigError("inspect: name one file or folder.", code="inspect-takes-one-path")
    from gptlab.check.inspection import inspect

    found = inspect(given.words[0])
    if given.format == "json":
        print(harmless_json(json_text(found.to_json(), indent=1)))
    else:
        for line in _lines(found):
            print(harmless(line))
    return 0 if found.whole else 1


def _lines(found: Inspection) -> Iterator[str]:
    yield f"{found.path}: {found.format}, {found.family}"
    kinds = ", ".join(f"{number} {kind}" for kind, number in found.kinds.items())
    yield f"  parameters  {found.parameters:,}, in tensors: {kinds}"
    count = f" in {len(found.files)} files" if len(found.files) > 1 else ""
    yield f"  bytes       {found.bytes:,}{count}, SHA-256 {found.sha256}"
    yield f"  model       {' '.join(f'{key}={json.dumps(value)}' for key, value in found.model.items())}"
    if found.tokenizer:
        yield f"  tokenizer   {found.tokenizer.name}"
    for why, number in found.dropped.items():
        yield f"  dropped     {number} times {why}"
    for note in found.notes:
        yield f"  note        {note}"
    for name in found.unsaid:
        yield f"  to be said  {name}"
    yield from _listed("missing", found.missing)
    yield from _listed("left over", found.left_over)
    yield "  whole       every name has its place" if found.whole else "  not whole   it is not used as it is"


def _listed(word: str, names: Sequence[str]) -> Iterator[str]:
    for name in names[:MOST]:
        yield f"  {word:<11} {name}"
    if len(names) > MOST:
        yield f"  {word:<11} and {len(names) - MOST} more"
