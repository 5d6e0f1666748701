"""`gptlab figures`: the seven figures, computed and drawn."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from gptlab.cli.arguments import Parser, about_options, names
from gptlab.errors import ConfigError, unknown
from gptlab.store.files import make_folder
from gptlab.texts import printable

HELP = """\
usage: gptlab figures [NAME ...] [-o FOLDER]
       gptlab figures --study STUDY [--only NAME[,NAME...]] [--width 84mm] [--label LABEL=NAME ...] [--no-title]
                      [--format svg|png|pdf] [-o FOLDER]

Computes the figures anew and writes each as SVG and PNG; without names, all seven (about ten seconds).
-o, --output  where to (default: figures; of a study, figures in its folder)
--study       the figures of this study instead: loss_curves, rates, differences, cost, isolation, heatmap,
              gradient_norm, gradient_mean_abs, parameters; those that it has the data for
--only        these of them
--width       of each figure, in mm, cm, in or pt: letters stay as large as they are, and panels go below each other
--label       what the figures call a variant (several times), beside the names that experiment.labels has
--no-title    without title and subtitle, and cropped: for a paper, whose caption says it
--format      one of them, in place of svg and png

  gptlab figures
  gptlab figures gradient_flow layer_norm --output slides

"""


def main(arguments: Sequence[str]) -> int:
    """Write the figures, print each path on stdout."""
    from gptlab.book.figures import FIGURES, write

    parser = Parser()
    parser.option("--output", "-o")
    parser.option("--study")
    parser.option("--only")
    parser.option("--width")
    parser.repeated("--label")
    parser.option("--format", choices=("svg", "png", "pdf"))
    parser.switch("--no-title")
    given = parser.read(arguments)
    words, folder = given.words, Path(given.output or "figures")
    if given.help:
        print(HELP + "\n".join(f"  {name:18} {what}" for name, what in FIGURES.items()))
        return 0
    if given.study:
        return _of_study(given)
    for flag in ("--only", "--width", "--label", "--format", "--no-title"):
        if getattr(given, flag.strip("-").replace("-", "_")):
            raise ConfigError(f"{flag}: only with --study STUDY.", code="figures-study-only", key=flag)
    for name in words:
        if name not in FIGURES:
            raise unknown("figures", name, FIGURES)
    try:
        make_folder(folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
        for path in write(list(dict.fromkeys(words)) or list(FIGURES), folder):
            print(path, flush=True)
    except OSError as error:
        raise ConfigError(
            f"figures: cannot write into {folder}: {error.strerror or error}.",
            code="figures-not-written",
            folder=folder,
            reason=error.strerror or str(error),
        ) from error
    return 0


def _of_study(given: Namespace) -> int:
    from gptlab.comparing.assemble import compare
    from gptlab.comparing.naming import named_study
    from gptlab.show.figures import NAMES, write_figures
    from gptlab.show.figures.page import inches
    from gptlab.store.study import load_study

    only = [*given.words, *names(given.only)]
    for name in only:
        if name not in NAMES:
            raise unknown("--only", name, NAMES)
    lost: dict[str, str] = {}
    with about_options(given, "label"):
        study = named_study(load_study(given.study), given.label)
        comparison = compare([given.study], labels=given.label)
    paths = write_figures(
        study,
        comparison,
        lost,
        Path(given.output) if given.output else None,
        only=only or NAMES,
        formats=(given.format,) if given.format else ("svg", "png"),
        title=not given.no_title,
        width=inches("--width", given.width) if given.width else None,
    )
    for path in paths:
        print(path)
    for name, why in lost.items():
        print(f"gptlab: figure {name} could not be drawn ({printable(why)}).", file=sys.stderr)
    return 1 if lost else 0
