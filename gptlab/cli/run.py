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
from gptlab.planning.plan import Plan, expand
from gptlab.running.decisions import explain, refuse, survey
from gptlab.running.kernels import refuse_damaged, settled
from gptlab.running.launch import look_again, run_jobs
from gptlab.running.queue import open_study
from gptlab.running.stopping import stoppable
from gptlab.training.progress import listening

FINISHED, FAILED, INTERRUPTED = 0, 1, 130


def main(arguments: Sequence[str]) -> int:
    """Run what the overrides ask for. What has been measured is shown, also after a failure or Ctrl-C."""
    given = Parser(overrides=True).read(arguments)
    plan = expand(given.words, given.config_dirs)
    for note in plan.notes:
        _say(note)
    decisions = survey(plan, plan.output_dir / plan.study)
    refuse(plan.runs, decisions)
    refuse_damaged(plan, plan.output_dir / plan.study, decisions)
    study, plan = open_study(plan, ["gptlab", *arguments])
    for line in explain(plan.runs, decisions):
        _say(line)
    progress = Progress(plan, sum(decision.action in ("run", "resume") for decision in decisions))
    code = FAILED
    try:
        with stoppable(), listening(progress.ticked):
            plan = settled(plan, study, decisions, _say)
            states = look_again(plan, study, run_jobs(plan, study, progress, decisions), _say)
        code = FINISHED if all(state == "finished" for state in states) else FAILED
        if code == FAILED:
            _say(f"{_count(states)}, in {study}")
    except KeyboardInterrupt as interrupt:
        progress.clear()
        states = [decision.state for decision in survey(plan, study)]
        _say(f"{str(interrupt) or 'interrupted'}: {_count(states)}, in {study}. The same command goes on from here.")
        code = INTERRUPTED
    finally:
        code = max(code, _show(study, plan))
    return code or analyse([run.config for run in plan.runs], study)


def _show(study: Path, plan: Plan) -> int:
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
