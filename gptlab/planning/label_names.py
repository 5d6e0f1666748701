"""`experiment.labels`: what tables and figures call the variants of a plan."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gptlab.declare.composer import Job
from gptlab.errors import unknown, wrong_value
from gptlab.store.csv_text import is_missing

KEY = "experiment.labels"


def names_of(jobs: Sequence[Job], ablations: Collection[str]) -> dict[str, str]:
    """Label -> name, of the variants in this plan; the jobs have their labels.

    An experiment may name more variants than one command runs, so the name of any ablation, or of a stack of them, is
    allowed. ConfigError for a label that no variant can have, and for two variants under one name.
    """
    named = dict(jobs[0].config.experiment.labels)
    labels = list(dict.fromkeys(job.config.label for job in jobs))
    for label, name in named.items():
        if label not in labels and not set(label.split("+")) <= set(ablations):
            raise unknown(KEY, label, labels)
        if not name or is_missing(name):
            why = "tables would take this name for a missing value. Choose another one."
            raise wrong_value(f"{KEY}.{label}", name, why, code="name-for-missing")
    taken: dict[str, str] = {}
    for label in labels:
        other = taken.setdefault(named.get(label, label), label)
        if other != label:
            why = f"{other} would have this name too. Two variants need two names."
            raise wrong_value(f"{KEY}.{label}", named.get(label, label), why, code="planned-name-twice", other=other)
    return {label: named[label] for label in labels if label in named}
