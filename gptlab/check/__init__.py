"""Is this variant a correct causal language model? One line for each thing that has to hold.

Each check looks at a `Case` and returns a `Verdict`. What a component raises is a failed line, never a traceback.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from gptlab import streams
from gptlab.check import copies, learning, modes, state, tokens, training
from gptlab.check.case import Case, refuse_too_large
from gptlab.check.report import Line, Report, Verdict, failed, not_applicable
from gptlab.config import Config
from gptlab.errors import GptlabError

CHECKS: dict[str, Callable[[Case], Verdict]] = {
    "shapes": tokens.shapes,
    "causality": tokens.causality,
    "causality of gradients": tokens.causality_of_gradients,
    "batch neighbours": tokens.neighbours,
    "no state": state.no_state,
    "decoding": state.decoding,
    "finite": learning.finite,
    "every parameter": learning.every_parameter,
    "every parameter moves": training.moves,
    "every expert": training.experts,
    "auxiliary losses": training.auxiliary_losses,
    "initial loss": learning.initial_loss,
    "ties": copies.ties,
    "state dict": copies.state_dict,
    "counts": copies.counts,
    "train and eval": modes.train_and_eval,
    "seed": copies.seed,
    "global random state": copies.global_random_state,
    "differs from baseline": modes.differs,
    "bf16 autocast": learning.autocast,
}
RUNS = "builds and runs"

__all__ = ["CHECKS", "RUNS", "Line", "Report", "check"]


def check(config: Config, baseline: Config | None = None) -> Report:
    """The report on one variant, compared with `baseline` if there is one.

    GptlabError for a config that cannot be built, and for a model that does not fit into memory a few times.
    """
    refuse_too_large(config)
    case = Case(config, baseline)
    state = random.getstate()
    try:
        with streams.forked(0, "check"):  # a component that draws from the global stream may not move the caller's
            first = _line(RUNS, _runs, case)
            if first.status == "fail":
                rest = [_named(name, not_applicable("the model does not run")) for name in CHECKS]
            else:
                rest = [_line(name, look, case) for name, look in CHECKS.items()]
    finally:
        random.setstate(state)
    return Report(config.label, (first, *rest))


def _runs(case: Case) -> Verdict:
    case.output(case.example(2, case.short))
    return Verdict(
        "pass", f"{type(case.model).__name__}, {sum(p.numel() for p in case.model.parameters()):,} parameters"
    )


def _line(name: str, look: Callable[[Case], Verdict], case: Case) -> Line:
    try:
        return _named(name, look(case))
    except GptlabError as error:
        if name == RUNS:
            raise  # the config cannot be built: nothing to report on
        return _named(name, failed(str(error)))
    except Exception as error:
        return _named(name, failed(f"{type(error).__name__}: {' '.join(str(error).split())}"))


def _named(name: str, verdict: Verdict) -> Line:
    return Line(name, verdict.status, verdict.reason, verdict.value)
