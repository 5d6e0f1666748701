"""`gptlab kernels`: what this machine computes fastest on the shapes of a training, and what a study would take."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from gptlab import kernels
from gptlab.cli.arguments import Parser
from gptlab.config import Config
from gptlab.errors import ConfigError

HELP = """\
usage: gptlab kernels [KEY=VALUE ...] [--again] [--format table|json] [--config-dir FOLDER]

Times the candidates for each thing that a training can compute in several ways, on the shapes of the baseline that the
same words without `kernels` would train, with as many threads: median milliseconds forward and backward, and the
reference's time over the candidate's. A candidate is taken when it is 5 % faster. It takes about a second, and is kept
in the cache; --again times anew. Nothing is run, and no study changes its choice.

  gptlab kernels model=tiny train.budget=200
  gptlab kernels model=gpt2_124m train.budget=200 train.batch_size=2 train.context=256 threads=2
  gptlab model=tiny train.budget=200 train.kernels=reference          # what plain torch does
  gptlab model=tiny train.budget=200 train.kernels.optimizer=flat     # one named, the others measured"""


def main(arguments: Sequence[str]) -> int:
    """Print the candidates on stdout."""
    parser = Parser(overrides=True)
    parser.option("--format", choices=("table", "json"), default="table")
    parser.switch("--again")
    given = parser.read(arguments)
    if given.help:
        print(HELP)
        return 0
    from gptlab.planning.plan import expand
    from gptlab.running.kernels import bases
    from gptlab.store.json_text import json_text

    plan = expand(given.words, given.config_dirs)
    found = [_measured(config, plan.output_dir / plan.study, given.again) for config in bases(plan).values()]
    if not found:
        raise ConfigError(
            "kernels: nothing would be trained, and what is not trained takes the reference. Name a budget: "
            "gptlab kernels model=tiny train.budget=200.",
            code="kernels-without-training",
            command="gptlab kernels model=tiny train.budget=200",
        )
    if given.format == "json":
        print(json_text({"schema": 1, "measurements": found}, indent=1))
    else:
        for one in found:
            _print(one)
    return 0


def _measured(config: Config, study: Path, again: bool) -> dict[str, Any]:
    """One measurement as its JSON says it."""
    from gptlab.running.kernels import FOLDER, estimate, measured, read_choice, shape_key
    from gptlab.store.damage import DamagedError

    choice = measured(config, again=again)
    path = study / FOLDER / f"{shape_key(config)}.json"
    try:
        in_study = kernels.resolved(config, read_choice(path).chosen) if path.exists() else None
    except DamagedError as damage:
        print(f"gptlab: {path}: {damage}", file=sys.stderr)
        in_study = None
    model, train = config.model, config.train
    return {
        "label": config.label,
        "shapes": {
            "batch": train.batch_size // train.accumulate, "context": train.context, "emb_dim": model.emb_dim,
            "n_layers": model.n_layers, "n_heads": model.n_heads, "vocab_size": model.vocab_size,
        },
        **choice.to_json(),
        "taken": kernels.resolved(config, choice.chosen),
        "not_measured": _not_measured(config, {place for place, *_ in choice.times}),
        "training_seconds": estimate(config),
        "study": in_study,
    }  # fmt: skip


def _print(found: Mapping[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from gptlab.texts import printable

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("place", "candidate", "ms", "ratio", ""):
        table.add_column(heading, justify="right" if heading in ("ms", "ratio") else "left")
    plain = {entry["place"]: entry["seconds"] for entry in found["times"] if entry["kernel"] in kernels.PLAIN.values()}
    for entry in found["times"]:
        place, name, seconds = entry["place"], entry["kernel"], entry["seconds"]
        taken = "taken" if found["taken"][place] == name else ""
        cells = (name, f"{1e3 * seconds:.3g}", f"{plain[place] / seconds:.2f}", taken)
        table.add_row(*map(Text, ("" if name != kernels.PLAIN[place] else place, *cells)))
    shapes = ", ".join(f"{name} {value}" for name, value in found["shapes"].items())
    machine = ", ".join(f"{name} {value}" for name, value in found["machine"].items())
    lines = [shapes, f"{found['reason']} ({machine})"]
    lines += [f"{place}={found['taken'][place]}: {why}." for place, why in found["not_measured"].items()]
    if found["study"]:
        lines.append(f"The study has its choice already: {kernels.words(found['study'])}.")
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    if found["times"]:
        console.print(table)
    for line in lines:
        console.print(Text(printable(line)), soft_wrap=True)


def _not_measured(config: Config, timed: Collection[str]) -> dict[str, str]:
    """Place -> why there is no time of it."""
    named, found = kernels.named(config.train), {}
    for place in kernels.PLACES:
        if place in named:
            found[place] = "train.kernels names it"
        elif why := kernels.unused(config, place):
            found[place] = why
        elif place == "loss":
            found[place] = "the logits of a part do not fit into one chunk, and memory decides"
        elif place not in timed:
            found[place] = {"linear": "this machine has no other", "optimizer": "of a million weights and more"}.get(
                place, "not measured"
            )
    return found
