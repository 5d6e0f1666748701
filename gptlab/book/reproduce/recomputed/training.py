"""What only training can tell. Each trains small models for the number of steps that it names."""

from __future__ import annotations

import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from gptlab.book.reproduce.lab import Lab
from gptlab.book.reproduce.measured_by import check
from gptlab.book.reproduce.verdicts import Found
from gptlab.probes import Subject

STEPS = 4000  # as the lesson
LESSON = (
    "model=toy_lesson", "data=sentences", "train=toy", "probes=counting", f"train.budget={STEPS}",
    "train.schedule=cosine", "evaluation.every=500", "train.clip=null", "train.keep_checkpoints=0",
)  # fmt: skip
DEEP = (
    "model=toy_lesson", "data=sentences", "train=toy", "probes=counting", "model.n_layers=12", "model.emb_dim=32",
    "train.budget=300", "evaluation.every=100", "train.learning_rate=1e-2", "train.clip=null",
    "train.keep_checkpoints=0",
)  # fmt: skip


def trained(lab: Lab, *overrides: str) -> dict[str, Any]:
    """The metrics of one training, its outcome and the seconds that it took."""

    def train_it() -> dict[str, Any]:
        subject = Subject(lab.config(*overrides))
        start = time.process_time()  # a toy trains on one thread, and other processes shall not count
        with tempfile.TemporaryDirectory() as folder:
            found = import_module("gptlab.training").train(subject, Path(folder))
        return {**found.metrics, "outcome": found.outcome, "seconds": time.process_time() - start}

    return lab.once(("trained", overrides), train_it)


def masked(lab: Lab) -> dict[str, Any]:
    return trained(lab, *LESSON)


def unmasked(lab: Lab) -> dict[str, Any]:
    return trained(lab, *LESSON, "ablation=no_mask")


@check("MK-masked")
def reaches_the_floor(lab: Lab) -> Found:
    found = masked(lab)
    loss, floor = found["final_loss"], found["entropy_floor"]
    return Found(loss / floor, f"{loss:.4f} nats against {floor:.4f} on gptlab's own sentences, {found['steps']} steps")


@check("MK-copy")
def copies(lab: Lab) -> Found:
    found = unmasked(lab)
    return Found(found["final_loss"], f"the entropy of the language is {found['entropy_floor']:.4f}")


@check("MK-deploy")
def used_with_a_mask(lab: Lab) -> float:
    return unmasked(lab)["final_causal_loss"]


@check("MK-steps")
def steps(lab: Lab) -> Any:
    found = {masked(lab)["steps"], unmasked(lab)["steps"]}
    return found.pop() if len(found) == 1 else sorted(found)


@check("MK-below")
def leak(lab: Lab) -> Found:
    return Found(unmasked(lab)["outcome"], f"the masked model is {masked(lab)['outcome']}")


@check("EQ-nope")
def without_positions(lab: Lab) -> Found:
    found = trained(lab, *LESSON, "ablation=no_positions")
    return Found(found["final_excess"], f"with positions {masked(lab)['final_excess']:.4f}; {found['steps']} steps")


@check("EQ-minute")
def seconds(lab: Lab) -> float:
    return masked(lab)["seconds"]


@check("EQ-postworse")
def post_norm(lab: Lab) -> Found:
    """Twelve layers at a high rate without warm-up."""
    pre, post = trained(lab, *DEEP), trained(lab, *DEEP, "ablation=post_ln")
    return Found(
        "worse" if post["final_loss"] > 1.1 * pre["final_loss"] else "as good",
        f"{post['final_loss']:.3f} nats ({post['outcome']}) against {pre['final_loss']:.3f}: 12 layers, rate 1e-2, no "
        f"warm-up, {post['steps']} steps, one seed",
    )


@check("MP-tieprefer")
def separate_head(lab: Lab) -> Found:
    """The toy at matched scale, early and late."""
    gaps = {}
    for budget in (100, 800):
        changed = f"train.budget={budget}"
        base = tuple(text for text in LESSON if not text.startswith(("train.budget", "train.schedule")))
        tied, untied = trained(lab, *base, changed), trained(lab, *base, changed, "ablation=untied")
        gaps[budget] = tied["final_loss"] - untied["final_loss"]
    return Found(
        "better" if gaps[800] > 0.01 else "no lasting difference",
        f"on the toy, a separate head is ahead by {gaps[100]:.3f} nats after 100 steps and by {gaps[800]:.3f} "
        "after 800 (one seed)",
    )
