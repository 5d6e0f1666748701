"""`experiment.labels`: what tables and figures call the variants of a plan."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gptlab.declare.composer import Job
from gptlab.errors import unknown
from gptlab.store.study_plan import check_names

KEY = "experiment.labels"


def names_of(jobs: Sequence[Job], ablations: Collection[str]) -> dict[str, str]:
    """Label -> name, of the variants in this plan; the jobs have their labels.

    An experiment may name more variants than one command runs, so the name of any ablation, or of a stack of them, is
    allowed. ConfigError for a label that no variant can have, and for two variants under one name.
    """
    named = dict(jobs[0].config.experiment.labels)
    labels = list(dict.fromkeys(job.config.label for job in jobs))
    for label in named:
        if label not in labels and not set(label.split("+")) <= set(ablations):
            raise unknown(KEY, label, labels)
    check_names(f"{KEY}.{{}}", labels, named)
    return {label: named[label] for label in labels if label in named}
