"""Training: `train` takes a subject from its initial weights to the end of its budget, and says what came out.

Free of torch until it is called.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gptlab.probes import Subject
    from gptlab.training.measured import Trained

__all__ = ["train"]


def train(subject: Subject, folder: Path, *, resume: bool = False) -> Trained:
    """Train `subject.model` in place as its config says, recording into `folder` as it goes.

    `resume`: the folder holds an interrupted run of this very config; go on from its newest checkpoint that verifies.
    """
    from gptlab.training.loop import Training

    return Training(subject, folder, resume=resume).run()
