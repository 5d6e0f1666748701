"""`gptlab ls`: the studies and runs on disk."""

from __future__ import annotations

from collections.abc import Sequence

from gptlab.cli.arguments import Parser, names, one_folder
from gptlab.cli.output import tell
from gptlab.config import Config
from gptlab.errors import ConfigError

HELP = """\
usage: gptlab ls [FOLDER] [--where CONDITION] [--tag TAG,...] [--archived] [--sort KEY,...] [--top N]
                 [--columns KEY,...] [--format table|csv|json|md]

Lists studies and runs under FOLDER (default: outputs) with their states. Nothing is written or changed.
A KEY is a column (study when label seed state outcome stale error seconds id folder tags notes archived), a metric, or
a dotted key of the config.
--tag       only runs that have all of these tags
--archived  archived runs too; without it they are left out, and counted in a line

  gptlab ls --where "model.norm_placement == post and loss < 5"
  gptlab ls --where "state in (failed, crashed) or stale" --columns label,seed,error
  gptlab ls --sort -loss --top 10 --columns label,seed,loss,model.emb_dim --format md

A condition has and, or, not, parentheses; == != < <= > >= ~ (contains), in (a, b); a KEY alone: is there."""
_FORMATS = ("table", "csv", "json", "md")


def main(arguments: Sequence[str]) -> int:
    """Print the listing on stdout."""
    parser = Parser()
    for flag in ("--where", "--tag", "--sort", "--top", "--columns"):
        parser.option(flag)
    parser.switch("--archived")
    parser.option("--format", choices=_FORMATS, default="table")
    given = parser.read(arguments)
    if given.help:
        print(HELP)
        return 0
    folder = one_folder("ls", given.words, Config().output_dir)
    from gptlab.show.listing import list_runs, print_rows, select
    from gptlab.show.marked import asked, said_hidden, with_tags, without_archived
    from gptlab.texts import printable

    top = given.top
    if top is not None and not top.isdecimal():
        raise ConfigError(
            f"--top: {top!r} is no number. It takes a whole one, as in --top 10.",
            code="not-a-number",
            key="--top",
            value=top,
        )
    everything = list_runs(folder)
    found = with_tags(everything, names(given.tag))
    shown = found if given.archived else without_archived(found, given.where or "")
    rows = select(shown, given.where or "", given.sort or "", int(top) if top else None)
    hidden = len(found) - len(shown)
    if not rows and given.format == "table" and (given.where or given.tag) and (everything or hidden):
        print(printable(f"No runs {'that are shown ' if hidden else ''}fit{asked(given.tag, given.where)}."))
    elif rows or not hidden or given.format != "table":
        print_rows(rows, folder, given.format, names(given.columns))
    if hidden:  # never in what a program reads
        print(said_hidden(hidden)) if given.format == "table" else tell(said_hidden(hidden))
    return 0
