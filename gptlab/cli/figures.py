"""`gptlab figures`: the seven figures, computed and drawn."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gptlab.cli.arguments import Parser
from gptlab.errors import ConfigError, unknown
from gptlab.store.files import make_folder

HELP = """\
usage: gptlab figures [NAME ...] [-o FOLDER]

Computes the figures anew and writes each as SVG and PNG; without names, all seven (about ten seconds).
-o, --output  where to (default: figures)

  gptlab figures
  gptlab figures gradient_flow layer_norm --output slides

"""


def main(arguments: Sequence[str]) -> int:
    """Write the figures, print each path on stdout."""
    from gptlab.book.figures import FIGURES, write

    parser = Parser()
    parser.option("--output", "-o", default="figures")
    given = parser.read(arguments)
    names, folder = given.words, Path(given.output)
    if given.help:
        print(HELP + "\n".join(f"  {name:18} {what}" for name, what in FIGURES.items()))
        return 0
    for name in names:
        if name not in FIGURES:
            raise unknown("figures", name, FIGURES)
    try:
        make_folder(folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
        for path in write(list(dict.fromkeys(names)) or list(FIGURES), folder):
            print(path, flush=True)
    except OSError as error:
        raise ConfigError(
            f"figures: cannot write into {folder}: {error.strerror or error}.",
            code="figures-not-written",
            folder=folder,
        ) from error
    return 0
