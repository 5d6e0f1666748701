"""`gptlab add`: a study grows by seeds or variants, and says so."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from gptlab.cli.arguments import Parser, one_folder
from gptlab.cli.output import tell
from gptlab.errors import ConfigError

HELP = """\
usage: gptlab add STUDY KEY=VALUE[,VALUE...] ... [--plan]

Grows a study: each key takes the values that the study has and the new ones, and what is missing of the grid is run:
old and new variants times old and new seeds. Seeds that are added when there are results already are recorded in
plan.json; tables and `gptlab audit` say so.
--plan      show what would run (as `gptlab plan`), and run nothing

  gptlab add outputs/runs seed=4,5 ablation=rope"""


def main(arguments: Sequence[str]) -> int:
    """Run what the grown study lacks; exit codes as for the study's own command."""
    parser = Parser()
    parser.switch("--plan")
    given = parser.read(arguments)
    if given.help:
        print(HELP)
        return 0
    folders = [word for word in given.words if "=" not in word]
    added = [word for word in given.words if "=" in word]
    if not folders or not added:
        raise ConfigError(
            "add: name a study's folder and what to add: gptlab add outputs/runs seed=4,5.", code="add-what"
        )
    command = grown_command(one_folder("add", folders, ""), added)
    tell(f"the study's command is now: {shlex.join(['gptlab', *command])}")
    if given.plan:
        from gptlab.cli import plan

        return plan.main(command)
    from gptlab.cli import run

    return run.main(command)


def grown_command(folder: Path, added: Sequence[str]) -> list[str]:
    """The arguments of the study's command with `added` in them. ConfigError where no command is known."""
    from gptlab.declare.composer import Composer
    from gptlab.planning.grow import grown
    from gptlab.store.names import STAMP
    from gptlab.store.plan_history import whole_plan

    plan, _ = whole_plan(folder)
    if plan.problem or not plan.command:
        raise ConfigError(
            f"add: {folder} does not say which command planned it ({plan.problem or 'plan.json names none'}).",
            code="no-command",
            file=str(folder),
        )
    name = folder.resolve().name
    if name != plan.study and not STAMP.fullmatch(name):
        back = folder.resolve().parent / plan.study
        raise ConfigError(
            f"add: {folder} was planned as {plan.study}, and what is added would go to a folder of that name, without "
            f"the runs that are here. Give it its name again: mv {shlex.quote(str(folder))} {shlex.quote(str(back))}",
            code="study-renamed",
            file=str(folder),
            value=plan.study,
        )
    own = Parser(overrides=True).read(plan.command[1:])
    words = grown(Composer(own.config_dirs), own.words, added, [run.seed for run in plan.runs])
    parent = folder.resolve().parent
    place = next((word.partition("=")[2] for word in words if word.startswith("output_dir=")), "outputs")
    if Path(place).resolve() != parent:
        words = [*(word for word in words if not word.startswith("output_dir=")), f"output_dir={parent}"]
    return [*words, *(text for path in own.config_dirs for text in ("--config-dir", path))]
