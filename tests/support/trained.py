"""Study folders of trained runs, made by the contract without a model: curves, budgets, sweeps of two knobs."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from tests.support.synthetic import BASELINE, Variant, make_study

STEPS = range(0, 2001, 50)
TOKENS = 4096  # per step
# label -> (final loss, sd over seeds of its difference to the baseline, parameters of a feed-forward network)
CHANGES = {
    "none": (3.60, 0.0, 56_669_184),
    "post_ln": (3.72, 0.02, 56_669_184),
    "relu": (3.605, 0.01, 56_669_184),
    "expansion_2": (3.66, 0.015, 28_339_200),
    "rmsnorm": (3.58, 0.006, 56_650_000),
    "wide": (3.52, 0.02, 80_000_000),
}


def make_trained(
    root: Path, labels: Sequence[str] = tuple(CHANGES), seeds: Sequence[int] = (1, 2, 3, 4, 5), *, diverged: str = ""
) -> Path:
    """A sweep of ablations, trained. `diverged`: a label whose last seed ends in NaN."""
    variants = [_variant(label, CHANGES[label.partition("_v")[0]][2]) for label in labels]
    folder = make_study(root, variants, seeds, name="training", question="Which changes help a small GPT?")
    ends = {label: CHANGES[label.partition("_v")[0]][:2] for label in labels}
    _train(folder, ends, {(diverged, seeds[-1])} if diverged else set())
    _plan(folder, {label: [f"ablation={label}"] for label in labels})
    return folder


def make_grid(root: Path, first: Mapping[str, Sequence[str]], seeds: Sequence[int] = (1, 2, 3)) -> Path:
    """A sweep over the given settings of each key, without ablations; the loss has its best in the middle."""
    keys = list(first)
    cells = list(product(*first.values()))
    labels = [
        ",".join(f"{key.split('.')[-1]}={value}" for key, value in zip(keys, cell, strict=True)) for cell in cells
    ]
    folder = make_study(root, [_variant(label, 10**7) for label in labels], seeds, name="grid", baseline=labels[0])
    ends = {}
    for label, cell in zip(labels, cells, strict=True):
        places = [
            list(first[key]).index(value) / max(len(first[key]) - 1, 1) for key, value in zip(keys, cell, strict=True)
        ]
        ends[label] = (3.4 + sum((place - 0.6) ** 2 * (1 + number) for number, place in enumerate(places)), 0.02)
    _train(folder, ends, set())
    _plan(
        folder,
        {
            label: [f"{key}={value}" for key, value in zip(keys, cell, strict=True)]
            for label, cell in zip(labels, cells, strict=True)
        },
    )
    return folder


def _variant(label: str, feed_forward: int) -> Variant:
    groups = {**BASELINE.groups, "feed_forward": feed_forward}
    return Variant(label, {} if label == "none" else {"model.activation": ("gelu_tanh", label)}, groups)


def _train(folder: Path, ends: Mapping[str, tuple[float, float]], diverged: set[tuple[str, int]]) -> None:
    for run in json.loads((folder / "plan.json").read_text(encoding="utf-8"))["runs"]:
        end, noise = ends[run["label"]]
        shared = random.Random(run["seed"]).gauss(0, 0.03)  # what a seed does to every variant
        own = random.Random(f"{run['label']}/{run['seed']}")
        final = end + shared + own.gauss(0, noise)
        path = folder / run["folder"] / "result.json"
        result = json.loads(path.read_text(encoding="utf-8"))
        flops = 2.0 * result["metrics"]["flops_training_per_token"]
        broken = (run["label"], run["seed"]) in diverged
        lines = [json.dumps(_line(step, final, flops, own, broken)) for step in STEPS]
        (folder / run["folder"] / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        result["metrics"] |= {"loss": None if broken else final, "final_loss": None if broken else final}
        result["state"] = "diverged" if broken else "finished"
        result["error"] = "the loss is not finite at step 1050" if broken else None
        path.write_text(json.dumps(result), encoding="utf-8")


def _line(step: int, final: float, flops: float, noise: random.Random, broken: bool) -> dict[str, Any]:
    share = step / STEPS[-1]
    loss = final + (10.82 - final) * (math.exp(-9 * share) + 0.12 * (1 - share)) / 1.12 + noise.gauss(0, 0.01)
    value = None if broken and step > 1000 else loss + (0.4 * (step / 500) ** 2 if broken else 0)
    metrics = {"train_loss": value, "validation_loss": value, "learning_rate": 1e-3}
    tokens = TOKENS * step
    return {"step": step, "tokens": tokens, "flops": flops * tokens, "seconds": 0.01 * step, "metrics": metrics}


def _plan(folder: Path, overrides: Mapping[str, Sequence[str]]) -> None:
    path = folder / "plan.json"
    plan = json.loads(path.read_text(encoding="utf-8"))
    for run in plan["runs"]:
        run["overrides"] = ["model=tiny", *overrides[run["label"]], f"seed={run['seed']}"]
    path.write_text(json.dumps(plan), encoding="utf-8")
