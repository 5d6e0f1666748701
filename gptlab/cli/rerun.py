"""`gptlab rerun`: repeat one run from its record, and say whether the numbers agree."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from gptlab.cli.arguments import Parser
from gptlab.config import Config
from gptlab.errors import ConfigError
from gptlab.texts import harmless

HELP = """\
usage: gptlab rerun RUN [--keep FOLDER]

Repeats one run from the config in its folder, with as many threads as it had, and compares every number and text that
is not a time. RUN is a run folder, or the beginning of the id of a run in outputs/. The repetition goes to a temporary
folder, or to FOLDER, and the record is not touched. Exit code 0 when all agree bit for bit, 1 when not."""
_MOST = 20


def main(arguments: Sequence[str]) -> int:
    """Print whether the repetition agrees, and where it does not."""
    parser = Parser()
    parser.option("--keep")
    given = parser.read(arguments)
    if given.help:
        print(HELP)
        return 0
    if len(given.words) != 1:
        raise ConfigError("rerun: name one run folder, or the beginning of an id.", code="rerun-takes-one-run")
    from gptlab.store.find_runs import find_run

    run = find_run(given.words[0], Path(Config().output_dir))
    if given.keep is None:
        with tempfile.TemporaryDirectory(prefix="gptlab-rerun-") as folder:
            return _report(run, Path(folder) / "run")
    target = Path(given.keep)
    if target.exists():
        raise ConfigError(f"--keep {target}: is there already.", code="keep-folder-exists", target=target)
    return _report(run, target)


def _report(run: Path, target: Path) -> int:
    from gptlab.running.rerun import rerun

    found = rerun(run, target)
    print(harmless(f"{run}: repeated"))
    for line in found.context:
        print(harmless(f"    {line}"))
    if not found.differences:
        print(f"    {found.compared} values compared: all agree bit for bit")
        return 0
    print(f"    {found.compared} values compared, {len(found.differences)} differences:")
    for line in found.differences[:_MOST]:
        print(harmless(f"    {line}"))
    if len(found.differences) > _MOST:
        print(f"    and {len(found.differences) - _MOST} more")
    return 1
