"""`gptlab [KEY=VALUE ...]`: plan, run what is missing, and show what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gptlab.cli.analysis import analyse
from gptlab.cli.arguments import Parser
from gptlab.cli.output import tell
from gptlab.cli.progress import Progress
from gptlab.errors import GptlabError
from gptlab.planning.plan import expand
from gptlab.planning.tuning import at_work, said
from gptlab.running.decisions import explain, survey
from gptlab.running.stages import Stage, begun, finished, following, reached
from gptlab.running.stopping import stoppable
from gptlab.training.progress import listening

FINISHED, FAILED, INTERRUPTED = 0, 1, 130


def main(arguments: Sequence[str]) -> int:
    """Run what the overrides ask for. What has been measured is shown, also after a failure or Ctrl-C."""
    given = Parser(overrides=True).read(arguments)
    command = ["gptlab", *arguments]
    plan = reached(expand(given.words, given.config_dirs))
    for note in (*plan.notes, *([said(plan)] if plan.tuning else [])):
        _say(note)
    stage = begun(plan, command)
    for line in explain(stage.runs, stage.decisions):
        _say(line)
    code = FAILED
    try:
        with stoppable():
            code = _run(stage)
            while code == FINISHED and (later := following(stage.plan)):
                _say(said(later))
                stage = begun(later, command)
                code = _run(stage)
    except KeyboardInterrupt as interrupt:
        states = [decision.state for decision in survey(at_work(stage.plan), stage.folder)]
        _say(
            f"{str(interrupt) or 'interrupted'}: {_count(states)}, in {stage.folder}. "
            "The same command goes on from here."
        )
        code = INTERRUPTED
    finally:
        code = max(code, _show(stage.folder))
    return code or analyse([run.config for run in stage.plan.runs], stage.folder)


def _run(stage: Stage) -> int:
    """Run one stage of the study; the trials of a tuning may diverge, which is an answer too."""
    progress = Progress(at_work(stage.plan), sum(decision.action in ("run", "resume") for decision in stage.decisions))
    try:
        with listening(progress.ticked):
            states = finished(stage, _say, progress)
    except KeyboardInterrupt:
        progress.clear()
        raise
    if all(state == "finished" or stage.tries and state == "diverged" for state in states):
        return FINISHED
    _say(f"{_count(states)}, in {stage.folder}")
    return FAILED


def _show(study: Path) -> int:
    """Tables and figures of the study. The measurements are on disk already: a failure here is not theirs."""
    from gptlab.show.finish import finish_study

    try:
        finish_study(study)
    except GptlabError as error:
        _say(str(error))
        return FAILED
    return FINISHED


def _count(states: Sequence[str]) -> str:
    """`3 of 12 runs finished, 1 failed, 8 planned`."""
    counts = Counter(states)
    others = [f"{number} {state}" for state, number in counts.items() if state != "finished"]
    return ", ".join([f"{counts['finished']} of {len(states)} runs finished", *others])


def _say(text: str) -> None:
    tell(text)
