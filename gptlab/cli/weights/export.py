"""`gptlab export`: the model of a run, or of any weights, as files for other projects."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gptlab.cli.arguments import Parser
from gptlab.errors import ConfigError

FORMS = ("hf", "safetensors", "book")
HELP = """\
usage: gptlab export RUN --to hf|safetensors|book -o FOLDER

Writes the model of a run (its newest checkpoint), or of any weights that `gptlab inspect` knows, into a new folder.
hf           config.json and model.safetensors, as a class of transformers' own. Where none is this very model, it is
             refused, and the key that stands in the way is named. GPT-2's vocabulary goes along where the run has it
safetensors  gptlab's own names, with the model's config: every model. `model.weights=FOLDER` reads it
book         model.pth, which the book's GPTModel loads

  gptlab export outputs/STUDY/RUN --to hf -o exported"""


def main(arguments: Sequence[str]) -> int:
    """Write the files, and say where."""
    parser = Parser()
    parser.option("--to", choices=FORMS)
    parser.option("--output", "-o")
    given = parser.read(arguments)
    if given.help:
        print(HELP)
        return 0
    if len(given.words) != 1 or not given.to or not given.output:
        raise ConfigError(
            "export: name one run, the form by --to, and a new folder by -o: gptlab export RUN --to hf -o FOLDER.",
            code="export-needs",
        )
    from gptlab.running.exporting import export
    from gptlab.running.trained import named

    found = named(given.words[0])
    for note in found.notes:
        print(f"gptlab: {note}", file=sys.stderr)
    print(export(found, given.to, given.output))
    return 0
