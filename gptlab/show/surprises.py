"""What surprises in a table, said under it: two sentences, and where more stands."""

from __future__ import annotations

from gptlab.store.study import Study

PAGE = "docs/surprises.md"


def surprises(study: Study) -> list[str]:
    """One note for each thing of an untrained study that a reader would take for a fault, or expect to see."""
    if study.trained:
        return []
    return [*_larger_gradients(study), *_tied(study), *_dropout(study)]


def _larger_gradients(study: Study) -> list[str]:
    runs = study.runs
    if "grad_norm_first" not in runs:
        return []
    base = runs[runs["is_baseline"]]
    before = dict(zip(base["seed"], base["grad_norm_first"], strict=True))
    for label, seed, own, changed in zip(
        runs["label"], runs["seed"], runs["grad_norm_first"], runs["changed"], strict=True
    ):
        if "shortcut: add -> none" in str(changed) and own > before.get(seed, float("inf")):
            return [
                f"{label}: without shortcuts the gradients of an untrained GPT grow instead of vanishing. A norm "
                "divides the gradient by the scale of its input, and that is one small branch instead of the whole "
                f"stream ({PAGE} measures it, and says what a seed does)."
            ]
    return []


def _tied(study: Study) -> list[str]:
    runs = study.runs
    if "loss" not in runs or "ln_vocab_size" not in runs:
        return []
    tied = runs["changed"].astype(str).str.contains("tie_weights: false -> true") & (
        runs["loss"] > 2 * runs["ln_vocab_size"]
    )
    return [
        f"{label}: the token that was read wins by far, whatever comes next, because its own embedding is its row of "
        f"the head; {PAGE} derives the loss."
        for label in dict.fromkeys(runs["label"][tied])
    ]


def _dropout(study: Study) -> list[str]:
    """Of a run without a baseline: with one, the look-alikes are named."""
    quiet = [
        run.label for run in study.plan.runs
        if run.baseline_id is None and any(word.startswith("model.drop_") for word in run.overrides)
        and not any(word.startswith("probes.gradients.dropout=") for word in run.overrides)
    ]  # fmt: skip
    return [
        f"{label}: dropout acts in training only, and nothing was trained: it shows in none of these numbers ({PAGE})."
        for label in dict.fromkeys(quiet)
    ]
