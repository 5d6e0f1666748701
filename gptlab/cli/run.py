"""`gptlab [KEY=VALUE ...]`: plan, run, and show what came of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gptlab.cli.analysis import analyse
from gptlab.cli.arguments import split
from gptlab.cli.progress import Progress
from gptlab.errors import GptlabError
from gptlab.runs.jobs import open_study, run_jobs
from gptlab.runs.plan import expand

FINISHED, FAILED, INTERRUPTED = 0, 1, 130


def main(arguments: Sequence[str]) -> int:
    """Run what the overrides ask for. What has been measured is shown, also after a failure or Ctrl-C."""
    given = split(arguments)
    plan = expand(given.words, given.config_dirs)
    for note in plan.notes:
        print(f"gptlab: {note}", file=sys.stderr)
    study = open_study(plan, ["gptlab", *arguments])
    progress = Progress(plan)
    code = FAILED
    try:
        states = run_jobs(plan, study, progress)
        code = FINISHED if all(state == "finished" for state in states) else FAILED
    except KeyboardInterrupt:
        progress.clear()
        print(
            f"gptlab: interrupted: {progress.finished} of {len(plan.runs)} runs finished, in {study}", file=sys.stderr
        )
        code = INTERRUPTED
    finally:
        code = max(code, _show(study))
    return code or analyse([run.config for run in plan.runs], study)


def _show(study: Path) -> int:
    """Tables and figures of the study. The measurements are on disk already: a failure here is not theirs."""
    from gptlab.results import finish_study

    try:
        finish_study(study)
    except GptlabError as error:
        print(f"gptlab: {error}", file=sys.stderr)
        return FAILED
    return FINISHED
